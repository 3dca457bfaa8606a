package postgres_test

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// A cutter stands between the store and PostgreSQL. Once it is armed, the next request
// arrives there and its answer does not arrive here: the connection is gone, and nobody knows
// what came of it.
type cutter struct {
	armed atomic.Bool
	cut   atomic.Int64
	// then, if not nil, is called once an answer has been cut off, before the connection ends.
	then atomic.Pointer[func()]
	// asked counts what arrives from here: about one for each round trip.
	asked atomic.Int64
}

// listen returns the URL of the database through the cutter.
func (c *cutter) listen(t *testing.T, url string) string {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.7000"))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { l.Close(); all.Wait() })
	all.Go(func() {
		for {
			here, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { c.pass(here) })
		}
	})
	_, database, _ := strings.Cut(url, "postgres:///")
	database, _, _ = strings.Cut(database, "?")
	return "postgres:///" + database + "?user=postgres&port=7000&host=" + dir
}

func (c *cutter) pass(here net.Conn) {
	defer here.Close()
	there, err := net.Dial("unix", filepath.Join(pg.Dir(), ".s.PGSQL.5432"))
	if err != nil {
		return
	}
	defer there.Close()
	var mute atomic.Bool
	var both sync.WaitGroup
	both.Go(func() {
		defer there.(*net.UnixConn).CloseWrite()
		b := make([]byte, 1<<20)
		for {
			n, err := here.Read(b)
			if err != nil {
				return
			}
			c.asked.Add(1)
			if c.armed.CompareAndSwap(true, false) {
				mute.Store(true)
			}
			if _, err := there.Write(b[:n]); err != nil {
				return
			}
		}
	})
	b := make([]byte, 1<<20)
	for {
		n, err := there.Read(b)
		if err != nil {
			break
		}
		if mute.Load() {
			// It has been answered, so the change was made.
			c.cut.Add(1)
			if then := c.then.Swap(nil); then != nil {
				(*then)()
			}
			break
		}
		if _, err := here.Write(b[:n]); err != nil {
			break
		}
	}
	here.Close()
	_, _ = io.Copy(io.Discard, there)
	both.Wait()
}

// When nobody knows whether a change was made, what can be made twice is, and succeeds. What
// cannot is not, and the caller is told to come back.
func TestUnknownCommits(t *testing.T) {
	url := database(t)
	c := &cutter{}
	s := open(t, c.listen(t, url))
	defer s.Close()
	ctx := t.Context()
	cut := func() {
		t.Helper()
		if _, err := s.Projects(ctx); err != nil { // a connection that works
			t.Fatal(err)
		}
		c.armed.Store(true)
	}
	wantCut := func(n int64) {
		t.Helper()
		if got := c.cut.Load(); got != n {
			t.Fatalf("%d answers were cut off, want %d", got, n)
		}
	}
	if _, err := s.ReserveAnswer(ctx, "p", "first", "print"); err != nil { // which also forgets old ones
		t.Fatal(err)
	}
	if err := s.PutToken(ctx, &store.Token{Token: bothy.Token{ID: "t", ProjectID: "p"}, Hash: "h"}); err != nil {
		t.Fatal(err)
	}

	cut()
	if err := s.PutSandbox(ctx, &store.Sandbox{Sandbox: bothy.Sandbox{ID: "a", Name: "n"}}); err != nil {
		t.Errorf("a sandbox: %v", err)
	}
	wantCut(1)
	cut()
	if err := s.AppendAudit(ctx, []store.AuditLine{{ID: 1, Record: "{}", Hash: "h1"}, {ID: 2, Record: "{}", Hash: "h2"}}); err != nil {
		t.Errorf("the audit: %v", err)
	}
	wantCut(2)
	cut()
	if b, err := s.Sandbox(ctx, "a"); err != nil || b.Name != "n" {
		t.Errorf("reading: %+v, %v", b, err)
	}
	wantCut(3)

	cut()
	if a, err := s.ReserveAnswer(ctx, "p", "k", "print"); err != nil || a != nil {
		t.Errorf("a reservation: %+v, %v", a, err)
	}
	wantCut(4)
	if a, err := s.ReserveAnswer(ctx, "p", "k", "print"); err != nil || a == nil {
		t.Errorf("a reservation that is held: %+v, %v", a, err)
	}

	for what, do := range map[string]func() error{
		"a project": func() error { return s.AddProject(ctx, &bothy.Project{ID: "p"}) },
		"an event":  func() error { return s.AddEvent(ctx, &bothy.Event{ProjectID: "p", Time: time.Now()}) },
		"a link": func() error {
			return s.AddLink(ctx, &bothy.Link{ID: "l", SandboxID: "a", TokenID: "t", ProjectID: "p"}, store.LinkBounds{})
		},
	} {
		was := c.cut.Load()
		cut()
		if e := bothy.AsError(do()); e.Code != bothy.CodeStore || e.RetryAfter == 0 {
			t.Errorf("%s: %v", what, e)
		}
		wantCut(was + 1)
	}
	for table, want := range map[string]int{"projects": 1, "events": 1, "links": 1, "answers": 2, "audit": 2, "sandboxes": 1} {
		var n int
		if err := s.Sees(ctx, "SELECT count(*) FROM "+table, &n); err != nil || n != want {
			t.Errorf("there are %d %s, want %d; %v", n, table, want, err)
		}
	}
}
