package e2e

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
	"github.com/bothy-dev/bothy/store/postgres/pgtest"
	"github.com/bothy-dev/bothy/test/testserver"
)

// load is users working in sandboxes through all hosts: each appends lines to a file and counts them.
// Errors must name their reason and be retriable.
type load struct {
	t     *testing.T
	hosts []*server
	boxes []*box
	// closed are hosts that get no requests, as load balancers arrange before a server is stopped.
	closed  []sync.RWMutex
	stop    context.CancelFunc
	users   sync.WaitGroup
	did     []atomic.Int64
	refused atomic.Int64
	// unknown counts failed commands that may have been executed.
	unknown []int64
}

// breathe pauses between repetitions, to leave processor time to the servers.
func breathe() { time.Sleep(20 * time.Millisecond) }

// newLoad starts one user for each sandbox, and a process in it.
func newLoad(t *testing.T, hosts []*server, boxes []*box) *load {
	l := &load{t: t, hosts: hosts, boxes: boxes, closed: make([]sync.RWMutex, len(hosts)), did: make([]atomic.Int64, len(boxes)), unknown: make([]int64, len(boxes))}
	for _, b := range boxes {
		b.counts()
	}
	ctx, stop := context.WithCancel(t.Context())
	l.stop = stop
	t.Cleanup(func() { stop(); l.users.Wait() })
	for i, b := range boxes {
		l.users.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				at := n % len(hosts)
				if l.closed[at].TryRLock() {
					l.use(i, b.at(hosts[at]))
					l.closed[at].RUnlock()
				}
				breathe()
			}
		})
	}
	return l
}

func (l *load) use(i int, b *box) {
	r, err := b.exec(line("", "echo x >>/workspace/lines; wc -l </workspace/lines"))
	if err != nil {
		if !retriable(err) {
			l.t.Errorf("a command in sandbox %d: %v", i, err)
			l.stop()
		}
		l.refused.Add(1)
		l.unknown[i]++
		return
	}
	n, err := strconv.ParseInt(strings.TrimSpace(r.Stdout), 10, 64)
	more := n - l.did[i].Load() - 1
	if err != nil || more < 0 || more > l.unknown[i] {
		l.t.Errorf("sandbox %d has %q lines after %d commands and %d with an unknown outcome", i, r.Stdout, l.did[i].Load(), l.unknown[i])
		l.stop()
	}
	l.unknown[i] -= more
	l.did[i].Store(n)
}

// retriable reports whether an error names its reason and says that the call can be retried.
func retriable(err error) bool {
	e := bothy.AsError(err)
	switch e.Code {
	case bothy.CodeStore, bothy.CodeCapacity, bothy.CodeShuttingDown, bothy.CodeMisdirected, bothy.CodeSandboxNotReady:
		return e.RetryAfter > 0 && e.Detail != ""
	}
	return false
}

// worked waits until every user has completed another command.
func (l *load) worked() {
	l.t.Helper()
	before := make([]int64, len(l.did))
	for i := range l.did {
		before[i] = l.did[i].Load()
	}
	for i := range l.did {
		eventually(l.t, fmt.Sprintf("something is done in sandbox %d", i), func() bool { return l.did[i].Load() > before[i] || l.t.Failed() })
	}
}

// ends stops the users, and checks that each sandbox exists once, with its process.
func (l *load) ends() {
	l.t.Helper()
	l.stop()
	l.users.Wait()
	for i, b := range l.boxes {
		b.sh("", "kill -0 $(cat /tmp/pid)")
		on := 0
		for _, s := range l.hosts {
			if len(s.Processes(b.id)) > 0 {
				on++
			}
		}
		if on != 1 {
			l.t.Errorf("sandbox %d is on %d hosts", i, on)
		}
	}
	l.t.Logf("%d refusals", l.refused.Load())
}

// Each host in turn is drained and restarted with another build of the program, while all sandboxes are
// in use. No request fails.
func TestHostsAreUpgradedOneAfterTheOther(t *testing.T) {
	t.Parallel()
	hosts := newHosts(t, "one", "two", "three")
	boxes := make([]*box, 6)
	for i := range boxes {
		boxes[i] = hosts[i%3].newBox(t, smallest)
	}
	program, err := testserver.Program()
	if err != nil {
		t.Fatal(err)
	}
	// The same program with different bytes, unless another build is given.
	other := os.Getenv("BOTHY_TEST_UPGRADE_B")
	if other == "" {
		other = filepath.Join(hosts[0].Dir, "bothy-other")
		if err := copyOf(program, other); err != nil {
			t.Fatal(err)
		}
	}
	l := newLoad(t, hosts, boxes)
	l.worked()
	for i, s := range hosts {
		l.closed[i].Lock()
		if out, err := s.cli(t, program, "host", "drain", "--self", "--deadline", "4m"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, b := range boxes {
			eventually(t, "nothing of a sandbox that left is there", func() bool { return len(s.Processes(b.id)) == 0 })
		}
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		l.worked()
		s.Binary = other
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		l.closed[i].Unlock()
		l.worked()
	}
	l.ends()
	if n := l.refused.Load(); n > 0 {
		t.Errorf("%d commands were refused", n)
	}
	for _, h := range must(hosts[0].Hosts.Hosts(t.Context())) {
		if h.State != bothy.HostUp {
			t.Errorf("the host %s is %s", h.Name, h.State)
		}
	}
}

func copyOf(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	// Appended bytes do not change how a program runs.
	if _, err := out.WriteString("another build\n"); err != nil {
		return err
	}
	return out.Close()
}

// The database is restarted, slow, unavailable until sandboxes are frozen, and replaced by its replica,
// while sandboxes are used and created. None is lost or duplicated; requests that cannot be served are
// refused with a reason and a time to retry.
func TestHostsUnderLoadWhileTheDatabaseFails(t *testing.T) {
	t.Parallel()
	for _, bouncer := range []bool{false, true} {
		t.Run(map[bool]string{false: "direct", true: "PgBouncer"}[bouncer], func(t *testing.T) {
			t.Parallel()
			testDatabaseFails(t, bouncer)
		})
	}
}

func testDatabaseFails(t *testing.T, bouncer bool) {
	pg := pgtest.ForTest(t)
	direct := pg.Database(t)
	now := pg
	var replica *pgtest.Server
	var way *wire
	url := direct
	if bouncer {
		config, err := pgx.ParseConfig(direct)
		if err != nil {
			t.Fatal(err)
		}
		url = pg.Bouncer(t, config.Database)
		way, url = newWire(t, url)
	} else {
		replica = pg.Replica(t)
		url = pg.Either(replica, direct)
	}
	hosts := newHostsWith(t, func(_ int, settings, _ string) (string, string) { return withLease(settings, 2*shortLease), url }, "one", "two")
	boxes := make([]*box, 4)
	for i := range boxes {
		boxes[i] = hosts[i%2].newBox(t, smallest)
	}
	l := newLoad(t, hosts, boxes)
	l.worked()
	// Each request has an idempotency key and is repeated until it succeeds, so there must be exactly one
	// sandbox for each request.
	ctx, enough := context.WithCancel(t.Context())
	var made sync.WaitGroup
	var all, doubled atomic.Int64
	made.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			key := client.WithIdempotencyKey(t.Context(), fmt.Sprint("made-", n))
			var sb *bothy.Sandbox
			for try := n; sb == nil; try++ {
				breathe()
				var err error
				if sb, err = hosts[try%2].create(key, smallest); err != nil && !retriable(err) {
					t.Errorf("creating a sandbox: %v", err)
					return
				}
			}
			again, err := hosts[(n+1)%2].create(key, smallest)
			for ; err != nil && retriable(err); again, err = hosts[n%2].create(key, smallest) {
				breathe()
			}
			if err != nil {
				t.Errorf("a completed request failed when it was repeated: %v", err)
				return
			}
			if all.Add(1); again.ID != sb.ID {
				doubled.Add(1)
			}
			for err = hosts[0].Sandboxes.Terminate(t.Context(), sb.ID); err != nil && retriable(err); err = hosts[0].Sandboxes.Terminate(t.Context(), sb.ID) {
				breathe()
			}
			if err != nil {
				t.Errorf("terminating a sandbox: %v", err)
				return
			}
		}
	})
	works := func(what string) {
		t.Helper()
		t.Log(what)
		l.worked()
		before := all.Load()
		eventually(t, "sandboxes are made", func() bool { return all.Load() > before+1 || t.Failed() })
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT} { // a fast shutdown, and a crash
		now.End(sig)
		if err := now.Run(); err != nil {
			t.Fatal(err)
		}
		works("the database was restarted")
	}
	// Unavailable until all sandboxes are frozen, for less than a lease.
	now.End(syscall.SIGINT)
	for _, s := range hosts {
		s.awaitFrozenByLease(t)
	}
	if err := now.Run(); err != nil {
		t.Fatal(err)
	}
	works("the database was unavailable")
	if way != nil {
		way.delay.Store(int64(30 * time.Millisecond))
		works("the database is slow")
		way.delay.Store(0)
	}
	if replica != nil {
		pg.Promote(t, replica, func() { pg.End(syscall.SIGQUIT) })
		works("the replica has taken over")
	}
	enough()
	made.Wait()
	l.ends()
	if n := doubled.Load(); n > 0 {
		t.Errorf("%d of %d requests got two different answers", n, all.Load())
	}
	for _, h := range must(hosts[0].Hosts.Hosts(t.Context())) {
		if h.State != bothy.HostUp {
			t.Errorf("the host %s is %s", h.Name, h.State)
		}
	}
}
