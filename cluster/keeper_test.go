package cluster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// kept is a keeper whose lease a test renews.
type kept struct {
	*Keeper
	mu      sync.Mutex // of renewed and did
	renewed time.Time
	lost    chan struct{}
	did     []string
	begun   time.Time
}

func newKept(t *testing.T, lease time.Duration) *kept { return newKeptBy(t, lease, nil) }

// newKeptBy is newKept, by a clock on the wall that is not the real one: ahead says by how much
// it goes ahead, so long after the begin.
func newKeptBy(t *testing.T, lease time.Duration, ahead func(after time.Duration) time.Duration) *kept {
	k := &kept{renewed: time.Now(), begun: time.Now(), lost: make(chan struct{})}
	var wall func(time.Time) time.Time
	if ahead != nil {
		wall = func(moment time.Time) time.Time { return moment.Round(0).Add(ahead(moment.Sub(k.begun))) }
	}
	note := func(what string) func() {
		return func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.did = append(k.did, what+" "+time.Since(k.begun).String())
		}
	}
	k.Keeper = NewKeeper(KeeperOptions{
		Times: Times{Lease: lease}, Renewed: k.last, Lost: k.lost, Wall: wall, Log: slog.New(slog.DiscardHandler),
		Suspend: note("suspend"), Unsuspend: note("unsuspend"), Abandon: note("abandon"),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return k
}

func (k *kept) last() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.renewed
}

func (k *kept) renew() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renewed = time.Now()
}

func (k *kept) all() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.did)
}

func (k *kept) want(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if !slices.Equal(k.all(), want) {
		t.Errorf("it did %q, not %q", k.all(), want)
	}
}

// until lets time pass up to a moment since the begin.
func (k *kept) until(d time.Duration) { time.Sleep(d - time.Since(k.begun)) }

// At three fifths of a lease without a renewal all is frozen, well before others may take over,
// and it continues with the next renewal.
func TestKeeperSuspendsBeforeTheLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, 15*time.Second)
		k.until(8900 * time.Millisecond)
		k.want(t)
		if !k.Live() {
			t.Error("it is not live before it has to stop")
		}
		// From the very moment on, also before the next look.
		k.until(9*time.Second + time.Nanosecond)
		if k.Live() {
			t.Error("it is live after it has to stop")
		}
		if why := k.Frozen(); !strings.Contains(why, "renew its lease in the database for 9 seconds") {
			t.Errorf("it is frozen because %q", why)
		}
		k.until(9050 * time.Millisecond)
		k.want(t, "suspend 9s")
		waited := make(chan error, 1)
		go func() { waited <- k.Await(t.Context()) }()
		k.until(12050 * time.Millisecond)
		if len(waited) > 0 {
			t.Errorf("what waited went on: %v", <-waited)
		}
		k.renew()
		k.until(12200 * time.Millisecond)
		k.want(t, "suspend 9s", "unsuspend 12.1s")
		if err := <-waited; err != nil || !k.Live() || k.Frozen() != "" {
			t.Errorf("it is not live after a renewal: %v %s", err, k.Frozen())
		}
	})
}

// The clocks of hosts may be set to anything: a lease is the database's time, and a host counts by
// how much time has passed. A clock that is set is noticed, in doubt for standing still, until the
// next renewal.
func TestKeeperWithClocksThatAreWrong(t *testing.T) {
	jump := func(at, by time.Duration) func(time.Duration) time.Duration {
		return func(after time.Duration) time.Duration {
			if after < at {
				return 0
			}
			return by
		}
	}
	for what, c := range map[string]struct {
		ahead func(time.Duration) time.Duration
		want  []string
	}{
		"an hour ahead":            {func(time.Duration) time.Duration { return time.Hour }, nil},
		"ten years behind":         {func(time.Duration) time.Duration { return -10 * 365 * 24 * time.Hour }, nil},
		"a fifth too fast":         {func(after time.Duration) time.Duration { return after / 5 }, nil},
		"at half speed":            {func(after time.Duration) time.Duration { return -after / 2 }, nil},
		"set ahead by a second":    {jump(20*time.Second, time.Second), nil},
		"set ahead by an hour":     {jump(20*time.Second, time.Hour), []string{"suspend 20s", "unsuspend 21s"}},
		"set back by an hour":      {jump(20*time.Second, -time.Hour), []string{"suspend 20s", "unsuspend 21s"}},
		"set back by five seconds": {jump(20*time.Second, -5*time.Second), nil},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKeptBy(t, 15*time.Second, c.ahead)
				// As often as in earnest, and never at a moment at which it is looked.
				for at := 2950 * time.Millisecond; at < time.Minute; at += 3 * time.Second {
					k.until(at)
					k.renew()
				}
				k.want(t, c.want...)
				begun := 59950 * time.Millisecond // the last renewal
				k.until(begun + 9*time.Second + 200*time.Millisecond)
				if did := k.all(); len(did) != len(c.want)+1 || k.Live() {
					t.Errorf("without a renewal it did %q", did)
				}
			})
		})
	}
}

// One that was given up ends everything, once, and is never live again.
func TestKeeperAbandonsWhatIsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, 15*time.Second)
		k.until(time.Minute)
		waited := make(chan error, 1)
		go func() { waited <- k.Await(t.Context()) }()
		close(k.lost)
		k.until(61 * time.Second)
		k.renew()
		k.until(2 * time.Minute)
		if did := k.all(); len(did) != 2 || did[1] != "abandon 1m0s" {
			t.Errorf("it did %q", did)
		}
		if k.Live() {
			t.Error("it is live")
		}
		if err := <-waited; !errors.Is(err, ErrGone) {
			t.Errorf("what waited: %v", err)
		}
	})
}

// A host that was not in touch with the database itself does not give up others: after an
// outage all leases have run out.
func TestKeeperIsSteadyOnlyAfterALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(t, 15*time.Second)
		renew := func(until time.Duration) {
			for time.Since(k.begun) < until {
				k.renew()
				time.Sleep(3 * time.Second)
			}
		}
		renew(18 * time.Second)
		if k.Steady() {
			t.Error("it is steady before a lease and its grace are over")
		}
		renew(24 * time.Second)
		if !k.Steady() {
			t.Error("it is not steady")
		}
		k.until(32 * time.Second) // nothing for eight seconds
		renew(36 * time.Second)
		if k.Steady() {
			t.Error("it is steady right after an outage")
		}
		renew(60 * time.Second)
		if !k.Steady() {
			t.Error("it is not steady a while after an outage")
		}
	})
}

func TestFate(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	snapshots := map[string]*bothy.Snapshot{
		"snp1": {ID: "snp1", SandboxID: "sbx", CreatedAt: at.Add(-time.Hour), Durable: bothy.DurableStore},
		"snp2": {ID: "snp2", SandboxID: "sbx", ParentID: "snp1", CreatedAt: at.Add(-time.Minute)},
		"snp3": {ID: "snp3", SandboxID: "another", CreatedAt: at, Durable: bothy.DurableStore},
	}
	decide := FateOf(func(n *bothy.Snapshot) bool { return n.Durable == bothy.DurableStore }, func() time.Time { return at })
	for what, c := range map[string]struct {
		sb    store.Sandbox
		free  bool
		state bothy.State
		why   bothy.EndReason
	}{
		"paused here alone":       {store.Sandbox{Sandbox: bothy.Sandbox{State: bothy.StatePaused, SnapshotID: "snp2"}}, false, bothy.StatePaused, ""},
		"paused in the store":     {store.Sandbox{Sandbox: bothy.Sandbox{State: bothy.StatePaused, SnapshotID: "snp1"}}, true, bothy.StatePaused, ""},
		"resuming":                {store.Sandbox{Sandbox: bothy.Sandbox{State: bothy.StateResuming, SnapshotID: "snp1"}}, true, bothy.StatePaused, ""},
		"running, never stored":   {store.Sandbox{Sandbox: bothy.Sandbox{State: bothy.StateRunning}}, true, bothy.StateFailed, bothy.EndHostLost},
		"pausing, never stored":   {store.Sandbox{Sandbox: bothy.Sandbox{State: bothy.StatePausing, SnapshotID: "snp9"}}, true, bothy.StateFailed, bothy.EndHostLost},
		"running from another's":  {store.Sandbox{Sandbox: bothy.Sandbox{State: bothy.StateRunning}, HeadSnapshotID: "snp3"}, true, bothy.StateFailed, bothy.EndHostLost},
		"starting":                {store.Sandbox{Sandbox: bothy.Sandbox{State: bothy.StateStarting}}, true, bothy.StateFailed, bothy.EndHostLost},
		"stopping":                {store.Sandbox{Sandbox: bothy.Sandbox{State: bothy.StateStopping}, Ending: &bothy.Exit{Reason: bothy.EndTimeout}}, true, bothy.StateStopped, bothy.EndTimeout},
		"running, and to fail":    {store.Sandbox{Sandbox: bothy.Sandbox{State: bothy.StateRunning, OnHostLoss: bothy.HostLossFail}, HeadSnapshotID: "snp1"}, true, bothy.StateFailed, bothy.EndHostLost},
		"running, to be resumed":  {store.Sandbox{Sandbox: bothy.Sandbox{State: bothy.StateRunning, OnHostLoss: bothy.HostLossResume}, HeadSnapshotID: "snp2"}, true, bothy.StatePaused, ""},
		"resuming, to be resumed": {store.Sandbox{Sandbox: bothy.Sandbox{State: bothy.StateResuming, OnHostLoss: bothy.HostLossResume, SnapshotID: "snp1"}}, true, bothy.StatePaused, ""},
		"paused, and to fail":     {store.Sandbox{Sandbox: bothy.Sandbox{State: bothy.StatePaused, OnHostLoss: bothy.HostLossFail, SnapshotID: "snp1"}}, true, bothy.StatePaused, ""},
		"waiting to be resumed": {store.Sandbox{Sandbox: bothy.Sandbox{State: bothy.StatePaused, OnHostLoss: bothy.HostLossResume, SnapshotID: "snp1",
			HostLoss: &bothy.HostLoss{SnapshotID: "snp1", NextResumeAt: &at}}}, true, bothy.StatePaused, ""},
		"running, stored earlier": {store.Sandbox{Sandbox: bothy.Sandbox{State: bothy.StateRunning}, HeadSnapshotID: "snp2"}, true, bothy.StatePaused, ""},
	} {
		sb := c.sb
		sb.ID = "sbx"
		free, e := decide(&sb, "one", func(id string) *bothy.Snapshot { return snapshots[id] })
		if free != c.free || sb.State != c.state || e.Type == "" || e.SandboxID != "sbx" {
			t.Errorf("%s: free %v, %s, %+v", what, free, sb.State, e)
		}
		if (sb.Ended != nil) != (c.why != "") || sb.Ended != nil && sb.Ended.Reason != c.why {
			t.Errorf("%s: it ended with %+v", what, sb.Ended)
		}
		wakes := strings.HasSuffix(what, "to be resumed")
		if due := sb.ResumeAt(); wakes != (due != nil && due.Equal(at)) {
			t.Errorf("%s: it is to be resumed at %v", what, due)
		}
		if l := sb.HostLoss; strings.HasPrefix(what, "running") && sb.State == bothy.StatePaused && (l == nil || l.Host != "one" || l.SnapshotID != "snp1" || l.AgeSeconds != 3600 || !l.At.Equal(at)) {
			t.Errorf("%s: it says %+v", what, l)
		}
		if what == "running, stored earlier" && (sb.SnapshotID != "snp1" || e.Data["age_seconds"] != "3600") {
			t.Errorf("%s: in %s, %v", what, sb.SnapshotID, e.Data)
		}
	}
}
