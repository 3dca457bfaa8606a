package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob/s3/s3test"
)

// newBlobs starts object storage and returns its setting.
func newBlobs(t *testing.T) (*s3test.Server, string) {
	t.Helper()
	objects := s3test.StartIn(t, t.TempDir())
	keys := filepath.Join(t.TempDir(), "keys")
	text := "[default]\naws_access_key_id = " + s3test.AccessKey + "\naws_secret_access_key = " + s3test.SecretKey + "\n"
	if err := os.WriteFile(keys, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return objects, objects.Bucket(t, "bothy") + "&credentials=" + keys
}

// smallTemplate has a shell and the usual commands. Hosts upload it in a third of the time.
const smallTemplate = "e2e-small"

// makeSmallTemplate builds it on the server of all tests.
var makeSmallTemplate = sync.OnceValue(func() error {
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	defer cancel()
	b, err := shared.Builder.StartBuild(ctx, bothy.BuildRequest{Name: smallTemplate, Dockerfile: "FROM " + templateName + `
USER root
RUN cd /usr && rm -rf share local include lib/python3* lib/git-core lib/*/perl* lib/*/gconv bin/git* bin/perl* /var/lib
USER user
`})
	if err == nil {
		err = shared.Builder.BuildLog(ctx, b.ID, 0, func(int64, bothy.BuildEvent) error { return nil })
	}
	if err == nil {
		b, err = shared.Builder.Build(ctx, b.ID)
	}
	if err == nil && b.State != bothy.BuildSucceeded {
		err = fmt.Errorf("the build is %s: %s", b.State, b.Error)
	}
	return err
})

// newStoringHosts starts hosts that share a database and object storage, with a short lease.
func newStoringHosts(t *testing.T, names ...string) ([]*server, *s3test.Server) {
	t.Helper()
	objects, blobs := newBlobs(t)
	return newStoringHostsWith(t, "blobs: "+blobs+"\n", names...), objects
}

// newStoringHostsWith is newStoringHosts with more settings, such as where the object storage is.
func newStoringHostsWith(t *testing.T, more string, names ...string) []*server {
	t.Helper()
	if err := makeSmallTemplate(); err != nil {
		t.Fatal(err)
	}
	folder := fewTemplates(t, smallTemplate, len(names))
	hosts := newHostsWith(t, func(i int, settings, store string) (string, string) {
		// Otherwise each test would upload all prepared templates.
		return withShortLease(settings) + "templates: " + folder(i) + "\n" + more, store
	}, names...)
	for _, s := range hosts {
		s.template = smallTemplate
	}
	return hosts
}

// counts starts a process that counts in memory and returns a function that reads the count.
func (b *box) counts() (read func() string) {
	b.sh("", "setsid -f bash -c 'n=0; echo $$ >/tmp/pid; while :; do n=$((n+1)); echo $n >/tmp/next; mv /tmp/next /tmp/count; sleep 0.05; done' >/dev/null 2>&1 </dev/null; until [ -s /tmp/count ]; do sleep 0.05; done")
	return func() string { return b.sh("", "kill -0 $(cat /tmp/pid) && cat /tmp/pid") }
}

// awaitHostLost waits until the remaining hosts have given up the host of a sandbox.
func (s *server) awaitHostLost(t *testing.T, id string) bothy.Event {
	t.Helper()
	return s.awaitEvent(t, id, bothy.EventSandboxHostLost)
}

// Sandboxes whose snapshots were in the object storage when their host died continue on another: paused
// ones with their memory, running ones from their last snapshot. The others wait for their host.
func TestAHostDiesWithObjectStorage(t *testing.T) {
	t.Parallel()
	hosts, objects := newStoringHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	paused, runs, late, gone := one.ownBox(t), one.ownBox(t), one.ownBox(t), one.ownBox(t)
	was := paused.counts()()
	paused.write("/workspace/file", "paused")
	slept, err := one.Snapshots.Pause(t.Context(), paused.id, bothy.PauseOptions{Wait: bothy.DurableStore})
	if err != nil || slept.Durable != bothy.DurableStore {
		t.Fatalf("%+v %v", slept, err)
	}
	gone.write("/workspace/file", "gone")
	ofGone, err := one.Snapshots.CreateSnapshot(t.Context(), gone.id, bothy.SnapshotCreate{Name: "kept", Wait: bothy.DurableStore})
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Sandboxes.Terminate(t.Context(), gone.id); err != nil {
		t.Fatal(err)
	}
	ran := runs.counts()()
	runs.write("/workspace/file", "then")
	taken, err := one.Snapshots.CreateSnapshot(t.Context(), runs.id, bothy.SnapshotCreate{Wait: bothy.DurableStore})
	if err != nil {
		t.Fatal(err)
	}
	runs.write("/workspace/file", "later")
	mend := objects.InjectFaults(s3test.Faults{Disconnect: func(r *http.Request) bool { return r.Method == http.MethodPut }})
	late.write("/workspace/file", "late")
	if _, err := one.Snapshots.Pause(t.Context(), late.id, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := one.Kill(); err != nil {
		t.Fatal(err)
	}
	mend()

	for _, b := range []*box{paused, runs, late} {
		two.awaitHostLost(t, b.id)
	}
	e := two.awaitHostLost(t, runs.id)
	if e.Data["snapshot_id"] != taken.ID || e.Data["age_seconds"] == "" || !strings.Contains(e.Data["detail"], "the host one was lost") {
		t.Errorf("the event of the running sandbox has %v", e.Data)
	}
	for _, c := range []struct {
		*box
		pid, content string
	}{{paused, was, "paused"}, {runs, ran, "then"}} {
		if sb, err := two.Sandboxes.Get(t.Context(), c.id); err != nil || sb.State != bothy.StatePaused {
			t.Fatalf("%+v %v", sb, err)
		}
		sb, err := two.Snapshots.Resume(t.Context(), c.id, bothy.ResumeOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if sb.Resumed == nil || sb.Resumed.Kind != bothy.SnapshotMemory {
			t.Errorf("it was resumed as %+v", sb.Resumed)
		}
		b := c.at(two)
		if got := b.sh("", "kill -0 $(cat /tmp/pid) && cat /tmp/pid"); got != c.pid {
			t.Errorf("the counting process is %q, and was %s", got, c.pid)
		}
		if got := b.read("/workspace/file"); got != c.content {
			t.Errorf("the file contains %q, want %q", got, c.content)
		}
	}
	// The snapshot of an ended sandbox does not need that host either.
	from, err := two.Sandboxes.Create(t.Context(), bothy.SandboxCreate{SnapshotID: ofGone.ID})
	if err != nil {
		t.Fatal(err)
	}
	fork := &box{t, two, t.Context(), from.ID}
	if got := fork.read("/workspace/file"); got != "gone" {
		t.Errorf("a sandbox from a snapshot has %q", got)
	}
	// The sandbox can be rolled back to a snapshot that the dead host wrote.
	r := runs.at(two)
	r.write("/workspace/file", "damaged")
	if _, err := two.Snapshots.Rollback(t.Context(), runs.id, taken.ID); err != nil {
		t.Fatal(err)
	}
	if got := r.read("/workspace/file"); got != "then" {
		t.Errorf("after a rollback the file contains %q", got)
	}
	if _, err := two.Snapshots.Resume(t.Context(), late.id, bothy.ResumeOptions{}); bothy.ErrorCode(err) != bothy.CodeStore {
		t.Errorf("a sandbox was resumed although its snapshot had not been uploaded: %v", err)
	}

	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
	if left := append(one.Processes(runs.id), one.Processes(paused.id)...); len(left) > 0 {
		t.Errorf("left of sandboxes that are on the other host: %v", left)
	}
	if _, err := two.Snapshots.Resume(t.Context(), late.id, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := late.at(two).read("/workspace/file"); got != "late" {
		t.Errorf("the sandbox whose snapshot had not been uploaded was resumed with %q", got)
	}
	for _, b := range []*box{paused, runs, fork} {
		b.at(two).usable()
	}
	two.isRefused(t, "another prefix", func(settings string) string { return strings.Replace(settings, "s3://bothy?", "s3://bothy/other?", 1) })
	two.isRefused(t, "a name that no host can have", func(settings string) string { return strings.Replace(settings, "name: two", "name: Two!", 1) })
	if err := two.Start(); err != nil {
		t.Fatal(err)
	}
	runs.at(two).usable()
}

// isRefused checks that a host does not start with other settings, and leaves it stopped.
func (s *server) isRefused(t *testing.T, what string, change func(settings string) string) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	own := s.Settings
	defer func() { s.Settings = own }()
	if s.Settings = change(own); s.Settings == own {
		t.Fatalf("there is no setting to change for %s:\n%s", what, own)
	}
	if s.Start() == nil {
		t.Errorf("it starts with %s", what)
	}
}

// A sandbox that moves and returns finds its snapshots in the object storage.
func TestAHostFetchesTheSnapshotsOfASandboxThatMoved(t *testing.T) {
	t.Parallel()
	hosts, _ := newStoringHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	b := one.ownBox(t)
	b.write("/workspace/file", "then")
	kept, err := one.Snapshots.CreateSnapshot(t.Context(), b.id, bothy.SnapshotCreate{Name: "kept", Wait: bothy.DurableStore})
	if err != nil {
		t.Fatal(err)
	}
	for i, to := range []*server{two, one} {
		on := b.at(to)
		b.write("/workspace/file", "later")
		b.moveTo([]string{"two", "one"}[i])
		if got := on.read("/workspace/file"); got != "later" {
			t.Errorf("after the move the file contains %q", got)
		}
		if _, err := to.Snapshots.Rollback(t.Context(), b.id, kept.ID); err != nil {
			t.Fatal(err)
		}
		if got := on.read("/workspace/file"); got != "then" {
			t.Errorf("after the rollback the file contains %q", got)
		}
	}
	// The host to which a paused sandbox moves fetches its snapshot and owns it.
	if _, err := one.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{Wait: bothy.DurableStore}); err != nil {
		t.Fatal(err)
	}
	b.moveTo("two")
	if _, err := one.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if on := sandboxesOn(t, one); on["one"] != 0 || on["two"] != 1 {
		t.Errorf("the hosts have %v", on)
	}
	if got := b.read("/workspace/file"); got != "then" {
		t.Errorf("it was resumed with %q", got)
	}
}
