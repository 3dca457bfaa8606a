package postgres_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/postgres"
	"github.com/bothy-dev/bothy/store/postgres/pgtest"
)

// The database crashes, and its replica takes over. Hosts that name both continue as the hosts that
// they were, with all that they had.
func TestHostsOutliveAFailover(t *testing.T) {
	first := pgtest.ForTest(t)
	second := first.Replica(t)
	url := first.Either(second, first.Database(t))
	ctx := t.Context()
	hosts := map[string]*postgres.Store{}
	for _, name := range []string{"one", "two"} {
		hosts[name] = member(t, url, name, postgres.WithLease(time.Minute, 50*time.Millisecond))
		defer hosts[name].Close()
		for i := range 20 {
			must(t, hosts[name].PutSandbox(ctx, sandbox(fmt.Sprint("sbx", name, i), bothy.StateRunning)))
		}
	}
	first.Promote(t, second, func() { first.End(syscall.SIGQUIT) })
	for name, s := range hosts {
		// What can be repeated is, for as long as it takes.
		must(t, s.PutSandbox(ctx, current(t, s, sandbox("sbx"+name+"0", bothy.StatePaused))))
		own, err := s.OwnSandboxesInState(ctx, bothy.StateRunning)
		if err != nil || len(own) != 19 {
			t.Errorf("%s has %d running sandboxes: %v", name, len(own), err)
		}
		before := s.Renewed()
		for end := time.Now().Add(time.Minute); s.Renewed().Equal(before); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("the lease of %s is renewed no more", name)
			}
		}
		select {
		case <-s.Lost():
			t.Errorf("%s takes itself for given up", name)
		default:
		}
	}
	if done, err := hosts["one"].GiveUpHosts(ctx, 0, func(*store.Sandbox, string, func(string) *bothy.Snapshot) (bool, bothy.Event) {
		t.Error("somebody is given up")
		return false, bothy.Event{}
	}); err != nil || len(done) > 0 {
		t.Errorf("%v %v", done, err)
	}
}
