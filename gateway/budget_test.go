package gateway

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// greedy opens connections until one is refused, and returns how many there are.
func (l *lab) greedy(most int) (n int) {
	l.t.Helper()
	for n < most {
		c, err := l.dial("5.6.7.8:9000")
		if err != nil {
			return n
		}
		if err := ping(c, "x"); err != nil {
			return n
		}
		n++
	}
	return n
}

// One sandbox, or one project with many, cannot use up the connections of the others; refusals are
// logged, and closed connections become available again.
func TestServerKeepsConnectionsForOthers(t *testing.T) {
	const max = 40
	budget := NewBudget(max)
	said := &safeBuffer{}
	newOne := func(project string) *lab {
		l := newLab(t, func(o *Options) {
			o.Budget = budget
			o.Log = slog.New(slog.NewTextHandler(said, nil))
		})
		l.net.serve("5.6.7.8:9000", echo)
		l.gateway.SetOwner(project)
		l.policy(open)
		return l
	}
	first := newOne("greedy")
	if got := first.greedy(max); got != max/2 {
		t.Errorf("one sandbox got %d of %d connections", got, max)
	}
	for range 3 {
		newOne("greedy").greedy(max)
	}
	if got := budget.Open(); got > max*2/3+1 {
		t.Errorf("one project got %d of %d connections", got, max)
	}
	for _, project := range []string{"modest", "modest too"} {
		if got := newOne(project).greedy(3); got != 3 {
			t.Errorf("another project got %d of 3 connections", got)
		}
	}
	told := false
	for _, d := range first.gateway.Log(time.Time{}) {
		told = told || !d.Allowed && strings.Contains(d.Reason, "too many open connections") && d.Port == 9000
	}
	if !told {
		t.Error("the refusal is not in the sandbox's log")
	}
	if n := strings.Count(said.String(), "the server has too many"); n != 1 {
		t.Errorf("the refusals are in the server's log %d times", n)
	}
	before := budget.Open()
	first.policy(off)
	eventually(t, "the connections are given back", func() bool { return budget.Open() == before-max/2 })
	// The resolver uses no file descriptor.
	last := newOne("last")
	for range 2 * max {
		if last.lookup("nobody.example"); budget.Open() != before-max/2 {
			t.Fatal("a DNS query counts as a connection")
		}
	}
}

func TestBudgetIsSharedFairly(t *testing.T) {
	b := NewBudget(90)
	held := map[string]int{}
	for range 200 {
		for _, project := range []string{"a", "b", "c"} {
			// Each project has so many sandboxes that only the project's share limits it.
			if b.take(project, 0) {
				held[project]++
			}
		}
	}
	for project, n := range held {
		if n < 24 || n > 28 {
			t.Errorf("%s holds %d of 90", project, n)
		}
	}
	if b.Open() >= 90 {
		t.Error("no connection is left")
	}
	for project, n := range held {
		for range n {
			b.put(project)
		}
	}
	if b.Open() != 0 || len(b.projects) != 0 {
		t.Errorf("%d connections are open: %v", b.Open(), b.projects)
	}
}

// Concurrent requests over one connection of the sandbox count as the upstream connections that
// they need.
func TestConcurrentRequestsCount(t *testing.T) {
	budget := NewBudget(8)
	ca := newAuthority(t)
	v := &vault{ca: ca, log: &safeBuffer{}}
	v.lab = newLab(t, func(o *Options) { o.RootCAs, o.Budget = ca.pool(), budget })
	release := make(chan struct{})
	v.net.name("api.example", "5.6.7.8")
	v.net.serve("5.6.7.8:443", func(c net.Conn) {
		// A host that speaks HTTP/1.1 only.
		conn := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{ca.certificate(t, "api.example")}})
		defer conn.Close()
		for lines := bufio.NewReader(conn); ; {
			r, err := http.ReadRequest(lines)
			if err != nil {
				return
			}
			if r.URL.Path == "/wait" {
				<-release
			}
			fmt.Fprint(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		}
	})
	if err := v.gateway.SetSecrets([]bothy.Secret{{Name: "KEY", Value: secretValue, Hosts: []string{"api.example"}}}, nil); err != nil {
		t.Fatal(err)
	}
	v.policy(only("api.example"))
	client := v.client(true)
	if code, body := v.do(client, "https://api.example/"); code != 204 {
		t.Fatal(code, body)
	}
	codes := make(chan int, 6)
	for range cap(codes) {
		go func() {
			code, _ := v.do(client, "https://api.example/wait")
			codes <- code
		}()
	}
	// One sandbox may use half of the budget.
	for range 2 {
		if code := <-codes; code != http.StatusBadGateway {
			t.Errorf("a request beyond the budget got %d", code)
		}
	}
	if got := budget.Open(); got != 4 {
		t.Errorf("%d connections count, not 4", got)
	}
	close(release)
	for range 4 {
		if code := <-codes; code != 204 {
			t.Errorf("a request within the budget got %d", code)
		}
	}
	v.policy(off)
	eventually(t, "all is given back", func() bool { return budget.Open() == 0 })
}
