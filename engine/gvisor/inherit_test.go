package gvisor_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// TestSentriesShareNoSocket starts machines one after another and concurrently: none
// may hold a socket of another, which could be its network device or its control.
func TestSentriesShareNoSocket(t *testing.T) {
	dir, parent := newPlace(t)
	e := newEngine(t, dir, parent)
	owner := map[string]string{}
	for batch := range 2 {
		for id, sockets := range startTogether(t, e, batch, 3) {
			for _, s := range sockets {
				if owner[s] != "" && owner[s] != id {
					t.Errorf("machines %s and %s both have %s", owner[s], id, s)
				}
				owner[s] = id
			}
		}
	}
	if len(owner) == 0 {
		t.Error("no sentry has any socket: the test looks at the wrong processes")
	}
}

// startTogether starts n machines concurrently and lists the sockets of each.
func startTogether(t *testing.T, e bothy.Engine, batch, n int) map[string][]string {
	t.Helper()
	type started struct {
		m   bothy.Machine
		err error
	}
	all := make(chan started, n)
	for i := range n {
		go func() {
			m, err := e.Start(t.Context(), spec(fmt.Sprintf("sockets-%d-%d", batch, i)))
			all <- started{m, err}
		}()
	}
	held := map[string][]string{}
	for range n {
		s := <-all
		if s.err != nil {
			t.Error(s.err)
			continue
		}
		t.Cleanup(func() { s.m.Destroy(context.Background()) })
		held[s.m.ID()] = sockets(t, s.m)
	}
	return held
}

func sockets(t *testing.T, m bothy.Machine) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", sentryOf(t, m))
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		if to, err := os.Readlink(dir + "/" + entry.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			found = append(found, to)
		}
	}
	return found
}
