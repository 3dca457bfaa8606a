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

// greedy opens connections until it is refused, and returns how many it got.
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

// One sandbox, or one project with many, cannot take the connections of the
// others, and what is refused is logged and given back.
func TestServerHasConnectionsLeftForEverybody(t *testing.T) {
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
		t.Error("the sandbox's log does not tell of the refusal")
	}
	if n := strings.Count(said.String(), "the server has too many"); n != 1 {
		t.Errorf("the server's log tells %d times of the refusals", n)
	}
	before := budget.Open()
	first.policy(off)
	eventually(t, "the connections are given back", func() bool { return budget.Open() == before-max/2 })
	// The resolver takes no descriptor.
	last := newOne("last")
	for range 2 * max {
		if last.lookup("nobody.example"); budget.Open() != before-max/2 {
			t.Fatal("a question counts as a connection")
		}
	}
}

func TestBudgetIsFairByWhatIsFree(t *testing.T) {
	b := NewBudget(90)
	held := map[string]int{}
	for range 200 {
		for _, project := range []string{"a", "b", "c"} {
			// Each project has so many sandboxes that only its own share counts.
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
		t.Error("nothing is left")
	}
	for project, n := range held {
		for range n {
			b.put(project)
		}
	}
	if b.Open() != 0 || len(b.projects) != 0 {
		t.Errorf("%d are open, of %v", b.Open(), b.projects)
	}
}

// Requests at the same time over one connection of the sandbox count as the
// connections that they take outside.
func TestRequestsAtTheSameTimeCount(t *testing.T) {
	budget := NewBudget(8)
	ca := newAuthority(t)
	v := &vault{ca: ca, log: &safeBuffer{}}
	v.lab = newLab(t, func(o *Options) { o.RootCAs, o.Budget = ca.pool(), budget })
	release := make(chan struct{})
	v.net.name("api.example", "5.6.7.8")
	v.net.serve("5.6.7.8:443", func(c net.Conn) {
		// A host that knows HTTP/1.1 only.
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
	// Half of the budget is one sandbox's.
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
