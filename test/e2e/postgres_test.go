package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
	"github.com/bothy-dev/bothy/store/postgres/pgtest"
	"github.com/bothy-dev/bothy/test/testserver"
)

// The server is killed, and its database is restarted, killed and unavailable for a while. The sandbox
// survives, and no confirmed change is lost.
func TestPostgresFailures(t *testing.T) {
	t.Parallel()
	pg := pgtest.ForTest(t)
	s := stoppedServer(t)
	s.NoPool, s.Store = true, pg.Database(t)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	k := s.newSurvivor(t)
	paused := s.newBox(t, bothy.SandboxCreate{Name: "paused", MemoryMB: 64})
	paused.write("/workspace/file", "content")
	if _, err := s.Snapshots.Pause(t.Context(), paused.id, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil { // at once: the database knows this server
		t.Fatal(err)
	}
	k.check()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} { // a fast shutdown, and a crash
		pg.End(sig)
		if err := pg.Run(); err != nil {
			t.Fatal(err)
		}
		k.check()
	}
	pg.End(syscall.SIGINT)
	k.usable()
	status, header := s.createBare(t)
	if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" {
		t.Errorf("without a database, creation is answered with %d, Retry-After %q", status, header.Get("Retry-After"))
	}
	if err := pg.Run(); err != nil {
		t.Fatal(err)
	}
	k.check()
	if _, err := s.Snapshots.Resume(t.Context(), paused.id, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := paused.read("/workspace/file"); got != "content" {
		t.Errorf("after a pause during all of this, the file contains %q", got)
	}
}

// createBare requests a sandbox once, without the client's retries.
func (s *server) createBare(t *testing.T) (int, http.Header) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Address+"/v1/sandboxes", strings.NewReader(`{"template":"`+templateName+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.Key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode, resp.Header
}

// A database belongs to one server. A second one ends at once and says why. When another server takes
// over the database, the first one ends too, while its sandbox keeps running for the next.
func TestPostgresHasOneServer(t *testing.T) {
	t.Parallel()
	pg := testserver.Postgres(t)
	s, other := stoppedServer(t), stoppedServer(t)
	s.NoPool, s.Store = true, pg.Database(t)
	other.NoPool, other.Store = true, s.Store
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	k := s.newSurvivor(t)
	refused := func(words string) {
		t.Helper()
		if err := other.Start(); err == nil {
			t.Fatal("a second server has the database")
		}
		if log := strings.Join(other.Log(), "\n"); !strings.Contains(log, words) {
			t.Errorf("the log does not say %q:\n%s", words, log)
		}
		other.ForgetLog()
	}
	refused("another server uses this database: process " + fmt.Sprint(s.PID()))

	pg.Exec(t, s.Store, `UPDATE server_lease SET epoch = epoch + 1`) // as a server with a copy of the home would
	if err := s.Ends(); err == nil || !strings.Contains(err.Error(), "ended badly") {
		t.Errorf("the server that lost the database: %v", err)
	}
	if log := strings.Join(s.Log(), "\n"); !strings.Contains(log, "another server has taken over the database") {
		t.Error("the log does not say why it ends")
	}
	pg.Exec(t, s.Store, `UPDATE server_lease SET until = clock_timestamp()`)
	refused("the database belongs to the state of another server")
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	k.check()
}

// Nothing that the server does needs a dedicated connection.
func TestPostgresThroughPgBouncer(t *testing.T) {
	t.Parallel()
	pg := pgtest.ForTest(t)
	direct := pg.Database(t)
	config, err := pgx.ParseConfig(direct)
	if err != nil {
		t.Fatal(err)
	}
	through := pg.Bouncer(t, config.Database)
	s := stoppedServer(t)
	s.NoPool, s.Store = true, through
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			sb, err := s.create(t.Context(), bothy.SandboxCreate{Name: fmt.Sprint("n", i), MemoryMB: 64, DiskMB: 64, Metadata: map[string]string{"n": fmt.Sprint(i)}})
			if err != nil {
				t.Error(err)
				return
			}
			b := &box{t, s, t.Context(), sb.ID}
			if r, err := b.exec(line("", "echo "+sb.Name)); err != nil || r.Stdout != sb.Name+"\n" {
				t.Errorf("%+v, %v", r, err)
			}
			list, err := s.Sandboxes.List(t.Context(), bothy.SandboxFilter{Metadata: map[string]string{"n": fmt.Sprint(i)}})
			if err != nil || len(list.Items) != 1 || list.Items[0].ID != sb.ID {
				t.Errorf("%+v, %v", list, err)
			}
		})
	}
	wg.Wait()
	k := s.newSurvivor(t)
	if _, err := s.Snapshots.Pause(t.Context(), k.id, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Snapshots.Resume(t.Context(), k.id, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	k.check()
	if check, err := s.Audit.CheckAudit(t.Context(), 0, ""); err != nil || !check.OK || check.Records == 0 {
		t.Errorf("the audit: %+v, %v", check, err)
	}
	last, n := int64(0), 0
	err = s.Events.Events(t.Context(), bothy.EventFilter{}, func(e bothy.Event) error {
		if n++; e.ID <= last {
			t.Errorf("event %d follows %d", e.ID, last)
		}
		last = e.ID
		return nil
	})
	if err != nil || n < 9 {
		t.Errorf("%d events, %v", n, err)
	}
	for end := time.Now().Add(hangs); ; time.Sleep(100 * time.Millisecond) {
		if r := k.usage(); r.Total.VCPUSeconds > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("there is no usage")
		}
	}
}

// migrate runs the migration command for the server's home.
func (s *server) migrate(t *testing.T, from, to string) (string, error) {
	t.Helper()
	program, err := testserver.Program()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "migrate", "--from", from, "--to", to)
	cmd.Env = append(os.Environ(), "BOTHY_HOME="+s.Home, "BOTHY_STORE=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Records are migrated from files to a database and back, with a running and a paused sandbox.
func TestPostgresMigration(t *testing.T) {
	t.Parallel()
	url := testserver.Postgres(t).Database(t)
	s := stoppedServer(t)
	s.NoPool, s.Store = true, ""
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	k := s.newSurvivor(t)
	paused := s.newBox(t, bothy.SandboxCreate{MemoryMB: 64, Metadata: map[string]string{"a": "b"}})
	paused.write("/workspace/file", "content")
	snapshot, err := s.Snapshots.CreateSnapshot(t.Context(), paused.id, bothy.SnapshotCreate{Name: "earlier"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Snapshots.Pause(t.Context(), paused.id, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := s.Tokens.CreateToken(t.Context(), bothy.TokenCreate{Name: "reads", Scopes: []bothy.Scope{bothy.ScopeSandboxesRead}})
	if err != nil {
		t.Fatal(err)
	}
	link, err := s.Links.CreateLink(t.Context(), paused.id, bothy.LinkCreate{Port: 8000})
	if err != nil {
		t.Fatal(err)
	}
	_, blobs := newBlobs(t)
	refused := func(from, to, words string) {
		t.Helper()
		if out, err := s.migrate(t, from, to); err == nil || !strings.Contains(out, words) {
			t.Errorf("from %s to %s: %v, and it does not say %q: %s", from, to, err, words, out)
		}
	}
	refused("sqlite", url, "another server uses "+s.Home)
	refused("sqlite", "sqlite", "or the other way round")
	events := func() (n int) {
		t.Helper()
		err := s.Events.Events(t.Context(), bothy.EventFilter{}, func(e bothy.Event) error {
			if e.Type != bothy.EventSnapshotStored { // they may arrive at any time
				n++
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return n
	}
	before := events()
	for _, way := range []struct{ from, to, store, sandboxes string }{{"sqlite", url, url, "2  sandboxes"}, {url, "sqlite", "", "3  sandboxes"}} {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		if out, err := s.migrate(t, way.from, way.to); err != nil || !strings.Contains(out, way.sandboxes) {
			t.Fatalf("%v: %s", err, out)
		}
		if way.store == "" {
			refused(url, "sqlite", "already contains records")
		} else {
			refused("sqlite", url, "there are no records in")
			if err := s.Start(); err == nil || !strings.Contains(strings.Join(s.Log(), "\n"), "store is not set") {
				t.Errorf("a start without records: %v, %q", err, s.Log())
			}
			s.Settings = "blobs: " + blobs + "\n"
		}
		s.Store = way.store
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		k.check()
		if n := events(); n != before {
			t.Errorf("there are %d events, and there were %d", n, before)
		}
		// A copy of it, which has ended, has the same metadata.
		list, err := s.Sandboxes.List(t.Context(), bothy.SandboxFilter{Metadata: map[string]string{"a": "b"}, States: []bothy.State{bothy.StatePaused}})
		if err != nil || len(list.Items) != 1 || list.Items[0].ID != paused.id {
			t.Errorf("the paused sandbox: %+v, %v", list, err)
		}
		if _, err := client.New(s.URL(), token.Key).Sandboxes.Get(t.Context(), paused.id); err != nil {
			t.Errorf("the key: %v", err)
		}
		if links, err := s.Links.Links(t.Context(), paused.id); err != nil || len(links) != 1 || links[0].ID != link.ID {
			t.Errorf("the links: %+v, %v", links, err)
		}
		copied := s.defaultBox(t, bothy.SandboxCreate{SnapshotID: snapshot.ID})
		if got := copied.read("/workspace/file"); got != "content" {
			t.Errorf("from the snapshot, the file contains %q", got)
		}
		if err := s.Sandboxes.Terminate(t.Context(), copied.id); err != nil {
			t.Error(err)
		}
		before = events()
		if check, err := s.Audit.CheckAudit(t.Context(), 0, ""); err != nil || !check.OK || check.Records == 0 {
			t.Errorf("the audit: %+v, %v", check, err)
		}
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	refused("sqlite", url, "the database already contains records")
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Snapshots.Resume(t.Context(), paused.id, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := paused.read("/workspace/file"); got != "content" {
		t.Errorf("the file contains %q", got)
	}
	kept, err := filepath.Glob(filepath.Join(s.Home, "bothy.db.moved-*"))
	if err != nil || len(kept) != 1 {
		t.Errorf("the old files that were kept: %v, %v", kept, err)
	}
}
