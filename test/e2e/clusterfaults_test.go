package e2e

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store/postgres/pgtest"
	"github.com/bothy-dev/bothy/test/testserver"
)

// newHostsOf starts hosts that share the database at a URL.
func newHostsOf(t *testing.T, url string, names ...string) []*server {
	t.Helper()
	return newHostsWith(t, func(_ int, settings, _ string) (string, string) { return settings, url }, names...)
}

// The database is restarted, and crashes. Hosts keep their sandboxes and stay in the cluster.
func TestHostsWhileTheDatabaseComesAndGoes(t *testing.T) {
	t.Parallel()
	pg := pgtest.ForTest(t)
	hosts := newHostsOf(t, pg.Database(t), "one", "two")
	one, two := hosts[0], hosts[1]
	b := one.newBox(t, bothy.SandboxCreate{MemoryMB: 64})
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} {
		pg.End(sig)
		if err := pg.Run(); err != nil {
			t.Fatal(err)
		}
		if got := b.at(two).sh("user", "echo here"); got != "here" {
			t.Errorf("after %v, a command through the other host: %q", sig, got)
		}
		two.newBox(t, bothy.SandboxCreate{MemoryMB: 64}).at(one).usable()
	}
	all, err := two.Hosts.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		if h.State != bothy.HostUp {
			t.Errorf("%s is %s", h.Name, h.State)
		}
	}
}

// Hosts need no dedicated connection to the database.
func TestHostsThroughPgBouncer(t *testing.T) {
	t.Parallel()
	pg := pgtest.ForTest(t)
	config, err := pgx.ParseConfig(pg.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	hosts := newHostsOf(t, pg.Bouncer(t, config.Database), "one", "two")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			b := hosts[i%2].newBox(t, bothy.SandboxCreate{MemoryMB: 64, Name: fmt.Sprint("n", i)})
			b.at(hosts[1-i%2]).usable()
		})
	}
	wg.Wait()
}

// A database restored from an old backup lacks sandboxes that hosts have. Hosts do not end these, and
// refuse to use that database; with the newest database they continue.
func TestHostsRefuseAnOldDatabase(t *testing.T) {
	t.Parallel()
	pg := testserver.Postgres(t)
	url := pg.Database(t)
	hosts := newHostsOf(t, url, "one", "two")
	one, two := hosts[0], hosts[1]
	b := one.ownBox(t)
	b.write("/workspace/file", "content")
	pg.Exec(t, url, `CREATE TABLE kept AS SELECT l.epoch AS counted, h.id, h.epoch FROM server_lease l, hosts h`)
	pg.Exec(t, url, `UPDATE server_lease SET epoch = 0; UPDATE hosts SET epoch = -epoch`)
	for _, s := range hosts {
		if err := s.Ends(); err == nil {
			t.Error("a host continues with an old database")
		}
		if log := strings.Join(s.Log(), "\n"); !strings.Contains(log, "the database is older than this host") {
			t.Errorf("the log does not say why it ends:\n%s", log)
		}
	}
	if len(one.Processes(b.id)) == 0 {
		t.Fatal("the sandbox of a host has ended")
	}
	if err := one.Start(); err == nil {
		t.Fatal("a host has joined an old database")
	}
	pg.Exec(t, url, `UPDATE server_lease SET epoch = (SELECT max(counted) FROM kept); UPDATE hosts h SET epoch = k.epoch FROM kept k WHERE k.id = h.id; DROP TABLE kept`)
	for _, s := range hosts {
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.at(two).read("/workspace/file"); got != "content" {
		t.Errorf("afterwards its file contains %q", got)
	}
}
