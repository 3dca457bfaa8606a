package e2e

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/cluster"
	"github.com/bothy-dev/bothy/internal/freeport"
	"github.com/bothy-dev/bothy/test/testserver"
)

// Leases of hosts, in seconds. A host is given up after a third more. With lease no host is given up,
// however busy this computer is; tests that wait for it use shortLease.
const (
	lease      = 60
	shortLease = 15
)

// newShortLeaseHosts is newHosts with a short lease.
func newShortLeaseHosts(t *testing.T, names ...string) (hosts []*server) {
	t.Helper()
	return newHostsWith(t, func(_ int, settings, store string) (string, string) { return withShortLease(settings), store }, names...)
}

func withShortLease(settings string) string { return withLease(settings, shortLease) }

func withLease(settings string, seconds int) string {
	return strings.Replace(settings, fmt.Sprintf("lease_seconds: %d", lease), fmt.Sprintf("lease_seconds: %d", seconds), 1)
}

// newHosts starts hosts that share a database. Each has its own home.
func newHosts(t *testing.T, names ...string) (hosts []*server) {
	t.Helper()
	return newHostsWith(t, func(_ int, settings, store string) (string, string) { return settings, store }, names...)
}

// newHostsWith is newHosts with different settings and a different URL of the database for each host.
func newHostsWith(t *testing.T, change func(i int, settings, store string) (string, string), names ...string) (hosts []*server) {
	t.Helper()
	url := testserver.Postgres(t).Database(t)
	kernels, err := kernelsFolder()
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		settings, store := change(i, fmt.Sprintf("cluster:\n  name: %s\n  listen: %s\n  lease_seconds: %d\n", name, freeport.ForTest(t), lease), url)
		s := stoppedServer(t)
		s.NoPool, s.SameAddress, s.Store, s.Settings, s.Env = true, true, store, settings, append(s.Env, "BOTHY_KERNELS="+kernels)
		if _, own, ok := strings.Cut(settings, "templates: "); ok { // the environment would override the setting
			own, _, _ = strings.Cut(own, "\n")
			s.Env = append(s.Env, "BOTHY_TEMPLATES="+own)
		}
		if i > 0 {
			hosts[0].admits(t, s)
		}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, s)
	}
	return hosts
}

// admits lets another server join. The commands of both use the same API key.
func (s *server) admits(t *testing.T, other *server) {
	t.Helper()
	invited, err := s.Hosts.InviteHost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bothy, err := testserver.Program()
	if err != nil {
		t.Fatal(err)
	}
	join := func() ([]byte, error) {
		cmd := exec.Command(bothy, strings.Fields(invited.Command)[2:]...) // without sudo
		cmd.Env = append(os.Environ(), "BOTHY_HOME="+other.Home)
		return cmd.CombinedOutput()
	}
	if out, err := join(); err != nil || !strings.Contains(string(out), "store: postgres://") {
		t.Fatalf("%s: %v\n%s", invited.Command, err, out)
	}
	if out, err := join(); err == nil || !strings.Contains(string(out), "belongs to another server") {
		t.Errorf("a host joined twice: %v\n%s", err, out)
	}
	key, err := os.ReadFile(filepath.Join(s.Dir, "credentials.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(other.Dir, "credentials.json"), key, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// at returns the same sandbox, used through another host.
func (b *box) at(s *server) *box {
	other := *b
	other.s = s
	return &other
}

// A join token admits one host, once. A cordoned host gets no new sandboxes, and only a lost host
// can be removed.
func TestAHostIsManaged(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	invited, err := one.Hosts.InviteHost(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	token := invited.Command[strings.LastIndex(invited.Command, " ")+1:]
	if _, err := cluster.Join(t.Context(), token, filepath.Join(t.TempDir(), "three")); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Join(t.Context(), token, filepath.Join(t.TempDir(), "four")); bothy.ErrorCode(err) != bothy.CodeForbidden {
		t.Errorf("a second host joined with the same token: %v", err)
	}
	if h, err := one.Hosts.UpdateHost(t.Context(), "two", bothy.HostUpdate{State: bothy.HostCordoned}); err != nil || h.State != bothy.HostCordoned {
		t.Fatalf("%+v %v", h, err)
	}
	sb, err := two.Sandboxes.Create(t.Context(), bothy.SandboxCreate{Template: "python-3.12-bare", MemoryMB: 64})
	if err != nil {
		t.Fatal(err)
	}
	all, err := two.Hosts.Hosts(t.Context())
	if err != nil || len(all) != 2 || all[0].Sandboxes != 1 || all[1].Sandboxes != 0 || !all[1].Self || all[1].State != bothy.HostCordoned {
		t.Errorf("a sandbox requested of the cordoned host: %+v %v", all, err)
	}
	if err := two.Sandboxes.Terminate(t.Context(), sb.ID); err != nil {
		t.Error(err)
	}
	if err := one.Hosts.RemoveHost(t.Context(), "two"); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("a live host was removed: %v", err)
	}
	if _, err := one.Hosts.UpdateHost(t.Context(), "two", bothy.HostUpdate{State: bothy.HostUp}); err != nil {
		t.Error(err)
	}
	if _, err := one.Hosts.UpdateHost(t.Context(), "five", bothy.HostUpdate{State: bothy.HostUp}); bothy.ErrorCode(err) != bothy.CodeNotFound {
		t.Errorf("a host that does not exist: %v", err)
	}
}

// Every host serves requests for every sandbox.
func TestAnyHostAnswers(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	b := one.newBox(t, bothy.SandboxCreate{MemoryMB: 64, Metadata: map[string]string{"a": "b"}})
	there := b.at(two)
	if got := there.sh("user", "echo $((6*7))"); got != "42" {
		t.Errorf("a command through the other host: %q", got)
	}
	content := strings.Repeat("content ", 1<<16)
	there.write("/workspace/file", content)
	if got := b.read("/workspace/file"); got != content {
		t.Errorf("a file through the other host has %d bytes", len(got))
	}
	list, err := two.Sandboxes.List(t.Context(), bothy.SandboxFilter{Metadata: map[string]string{"a": "b"}})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("the other host lists %v %v", list.Items, err)
	}
	if _, err := two.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if sb := there.get(); sb.State != bothy.StateRunning {
		t.Errorf("it is %s", sb.State)
	}
	if err := two.Sandboxes.Terminate(t.Context(), b.id); err != nil {
		t.Fatal(err)
	}
	if sb := b.get(); !sb.State.Ended() {
		t.Errorf("it is %s", sb.State)
	}
}

// A host that is killed and started again keeps its sandboxes. One that stays down is given up, and
// the other hosts say what became of its sandboxes.
func TestAHostDies(t *testing.T) {
	t.Parallel()
	hosts := newShortLeaseHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	b := one.boxOn(t, "one", bothy.SandboxCreate{MemoryMB: 64, Name: "runs"})
	paused := one.boxOn(t, "one", bothy.SandboxCreate{MemoryMB: 64, Name: "paused"})
	paused.write("/workspace/file", "content")
	unwanted := map[string]*box{}
	for _, by := range []string{"the API", "an agent", "E2B"} {
		unwanted[by] = one.boxOn(t, "one", bothy.SandboxCreate{MemoryMB: 64})
	}
	for _, b := range append(slices.Collect(maps.Values(unwanted)), paused) {
		if _, err := one.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.at(two).exec(bothy.ExecRequest{Command: bothy.Command{Args: []string{"true"}}}); bothy.ErrorCode(err) != bothy.CodeStore {
		t.Errorf("a command in a sandbox of a host that is unavailable: %v", err)
	}
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	b.usable()
	if err := one.Kill(); err != nil {
		t.Fatal(err)
	}
	ended := two.awaitEndOf(t, b.id)
	if ended.Ended.Reason != bothy.EndHostLost {
		t.Errorf("it ended with %+v", ended.Ended)
	}
	// Its snapshot is only on the dead host, so it waits for that.
	if _, err := two.Snapshots.Resume(t.Context(), paused.id, bothy.ResumeOptions{}); bothy.ErrorCode(err) != bothy.CodeStore {
		t.Errorf("a sandbox whose snapshot is unavailable was resumed: %v", err)
	}
	// It can be deleted without that host.
	if err := two.Sandboxes.Terminate(t.Context(), unwanted["the API"].id); err != nil {
		t.Errorf("a sandbox whose snapshot is unavailable cannot be deleted: %v", err)
	}
	if r := two.agent(t, "terminate_sandbox", map[string]any{"sandbox_id": unwanted["an agent"].id}); r.IsError {
		t.Errorf("an agent cannot delete it: %+v", r)
	}
	if status, text := two.raw(t, http.MethodDelete, "/sandboxes/"+unwanted["E2B"].id, "", http.Header{"X-Api-Key": {two.Key}}); status != http.StatusNoContent {
		t.Errorf("E2B's SDKs cannot delete it: %d %s", status, text)
	}
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Snapshots.Resume(t.Context(), paused.id, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := paused.at(two).read("/workspace/file"); got != "content" {
		t.Errorf("it was resumed with %q", got)
	}
	if left := one.Processes(b.id); len(left) > 0 {
		t.Errorf("left of the sandbox that ended elsewhere: %v", left)
	}
	for by, b := range unwanted {
		if sb := b.at(one).get(); sb.State != bothy.StateStopped {
			t.Errorf("on its host, which is back, the sandbox that %s deleted is %s", by, sb.State)
		}
		page, err := one.Snapshots.Snapshots(t.Context(), bothy.SnapshotFilter{SandboxID: b.id})
		if err != nil || len(page.Items) > 0 {
			t.Errorf("on its host, which is back, the snapshots of the sandbox that %s deleted are %v, %v", by, page.Items, err)
		}
	}
}

// awaitEvent waits for an event of a sandbox, or returns one that has already happened.
func (s *server) awaitEvent(t *testing.T, id string, kind string) (found bothy.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	err := s.Events.Events(ctx, bothy.EventFilter{SandboxID: id, Follow: true}, func(e bothy.Event) error {
		if e.SandboxID == id && e.Type == kind {
			found = e
			return context.Canceled
		}
		return nil
	})
	if found.Type == "" {
		t.Fatalf("there was no event %s of sandbox %s: %v", kind, id, err)
	}
	return found
}

// awaitEndOf waits until a sandbox has ended.
func (s *server) awaitEndOf(t *testing.T, id string) *bothy.Sandbox {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	var found *bothy.Sandbox
	err := s.Events.Events(ctx, bothy.EventFilter{SandboxID: id, Follow: true}, func(e bothy.Event) error {
		if e.SandboxID != id || e.Type != bothy.EventSandboxEnded {
			return nil
		}
		sb, err := s.Sandboxes.Get(ctx, id)
		if err == nil {
			found = sb
			err = context.Canceled
		}
		return err
	})
	if found == nil {
		t.Fatalf("the sandbox %s has not ended: %v", id, err)
	}
	return found
}

// A host that is stopped for so long that it is given up first ends its sandboxes when it continues,
// and then joins again.
func TestAHostThatWasGivenUpEndsItsSandboxes(t *testing.T) {
	t.Parallel()
	hosts := newShortLeaseHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	b := one.ownBox(t)
	if err := one.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if ended := two.awaitEndOf(t, b.id); ended.Ended.Reason != bothy.EndHostLost {
		t.Errorf("it ended with %+v", ended.Ended)
	}
	if len(one.Processes(b.id)) == 0 {
		t.Error("its machine is gone while its host is stopped")
	}
	if err := one.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := one.Ends(); err == nil {
		t.Error("the host that was given up continues")
	}
	if left := one.Processes(b.id); len(left) > 0 {
		t.Errorf("left of the sandbox: %v", left)
	}
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	b = two.newBox(t, bothy.SandboxCreate{MemoryMB: 64})
	b.at(one).usable()
}

// A host that is stopped for less time than its lease delays requests, and has no other effect.
func TestAHostIsBrieflyUnavailable(t *testing.T) {
	t.Parallel()
	hosts := newShortLeaseHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	b := one.ownBox(t)
	if err := one.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(shortLease*time.Second*2/5, func() { _ = one.Signal(syscall.SIGCONT) })
	if got := b.at(two).sh("user", "echo here"); got != "here" {
		t.Errorf("a command through a host that was stopped: %q", got)
	}
}
