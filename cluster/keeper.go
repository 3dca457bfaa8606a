// Package cluster turns several servers that share a database into one. It guards this host's
// lease, gives up hosts that died, forwards each request to the host that has its sandbox, and
// chooses the host of a new one. server supplies the store and the actions.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy/store"
)

// Times are the durations of a lease.
type Times struct {
	// Lease is how long a renewal is valid.
	Lease time.Duration
}

// Renew is how often the lease is renewed.
func (t Times) Renew() time.Duration { return t.Lease / 5 }

// Suspend is how long after the last renewal a host freezes its sandboxes: well before another
// host may take them.
func (t Times) Suspend() time.Duration { return t.Lease * 3 / 5 }

// Grace is how long after its lease expires a host is given up.
func (t Times) Grace() time.Duration { return t.Lease / 3 }

// look is how often the lease is checked.
const look = 100 * time.Millisecond

// KeeperOptions configure a Keeper.
type KeeperOptions struct {
	Times Times
	// Renewed returns when the last successful renewal was sent. Lost is closed when this host
	// has been given up.
	Renewed func() time.Time
	Lost    <-chan struct{}
	// Wall returns the wall-clock time at a moment. Optional.
	Wall func(moment time.Time) time.Time
	// Suspend freezes all sandboxes, Unsuspend thaws them, and Abandon destroys them. Calls do
	// not overlap.
	Suspend, Unsuspend, Abandon func()
	// Older reports, once Lost is closed, that this host was not given up but its database is
	// an older one. Its sandboxes stay frozen then, and Keep is called.
	Older func() bool
	Keep  func()
	// GaveUp is called with the hosts that this one has given up. Optional.
	GaveUp func([]store.HostGivenUp)
	Log    *slog.Logger
	Counts *Counts
}

// Keeper guards this host's lease: it fences the host off when renewals fail.
type Keeper struct {
	o KeeperOptions
	// suspended is set from before Suspend until after Unsuspend.
	suspended atomic.Bool
	gone      atomic.Bool
	// steady is since when renewals have been on time, in nanoseconds since begun; 0 while they
	// are not.
	begun  time.Time
	steady atomic.Int64
}

// NewKeeper returns the keeper of a host whose lease has just begun.
func NewKeeper(o KeeperOptions) *Keeper {
	o.Counts = cmp.Or(o.Counts, &Counts{})
	if o.Wall == nil {
		o.Wall = func(moment time.Time) time.Time { return moment.Round(0) }
	}
	return &Keeper{o: o, begun: time.Now()}
}

// fresh reports whether the last renewal is recent enough. A stopped process notices by the
// monotonic clock, a suspended machine by the wall clock.
func (k *Keeper) fresh() bool {
	age, wall := k.age()
	most := k.o.Times.Suspend()
	return age < most && wall < most && wall > -most
}

func (k *Keeper) age() (age, wall time.Duration) {
	now, last := time.Now(), k.o.Renewed()
	return now.Sub(last), k.o.Wall(now).Sub(k.o.Wall(last))
}

// LeaseAge is the time since the last successful renewal was sent.
func (k *Keeper) LeaseAge() time.Duration { age, _ := k.age(); return age }

// Live reports whether this host may act for its sandboxes.
func (k *Keeper) Live() bool { return !k.suspended.Load() && !k.gone.Load() && k.fresh() }

// Frozen is why this host may not act for its sandboxes, "" if it may.
func (k *Keeper) Frozen() string {
	switch {
	case k.gone.Load() && k.o.Older != nil && k.o.Older():
		return "the database is older than this host; its sandboxes stay frozen until the newest backup is restored"
	case k.gone.Load():
		return "the other hosts have given this one up, and its sandboxes have ended here"
	case !k.Live():
		return fmt.Sprintf("this host could not renew its lease in the database for %d seconds; its sandboxes are frozen until it can", int(k.LeaseAge().Seconds()))
	}
	return ""
}

// ErrGone is returned once the other hosts have given this one up.
var ErrGone = errors.New("the other hosts have given this one up")

// Await waits until this host may act for its sandboxes.
func (k *Keeper) Await(ctx context.Context) error {
	if k.Live() {
		return nil
	}
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		if k.gone.Load() {
			return ErrGone
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
		if k.Live() {
			return nil
		}
	}
}

// Steady reports whether this host has had the database long enough that a host without a
// renewal in that time must be dead. After an outage of the database, all leases have expired
// and prove nothing.
func (k *Keeper) Steady() bool {
	since := k.steady.Load()
	return since != 0 && k.Live() && time.Since(k.begun)-time.Duration(since) >= k.o.Times.Lease+k.o.Times.Grace()
}

// Run enforces this host's lease until ctx ends or the host is given up.
func (k *Keeper) Run(ctx context.Context) {
	t := time.NewTicker(look)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.o.Lost:
			k.gone.Store(true)
			if k.o.Older != nil && k.o.Older() {
				k.o.Log.Error("the database is older than this host; its sandboxes stay frozen and are kept")
				k.o.Suspend()
				k.o.Keep()
				return
			}
			k.o.Log.Error("the other hosts have given this one up; its sandboxes end here")
			k.o.Abandon()
			return
		case <-t.C:
		}
		k.look()
	}
}

func (k *Keeper) look() {
	if age, _ := k.age(); age > 2*k.o.Times.Renew() {
		k.steady.Store(0)
	} else if k.steady.Load() == 0 {
		k.steady.Store(max(1, int64(time.Since(k.begun))))
	}
	switch fresh := k.fresh(); {
	case !fresh && !k.suspended.Load():
		k.suspended.Store(true)
		k.o.Counts.Freezes.Add(1)
		age, _ := k.age()
		k.o.Log.Warn("cannot renew this host's lease; its sandboxes are frozen", "since", age.Round(time.Millisecond).String())
		k.o.Suspend()
	case fresh && k.suspended.Load():
		k.o.Unsuspend()
		k.suspended.Store(false)
		k.o.Counts.Thaws.Add(1)
		k.o.Log.Info("this host's lease is renewed; its sandboxes run again")
	}
}

// Duty runs work that one host does for all, for as long as this host holds the duty.
func (k *Keeper) Duty(ctx context.Context, hosts store.Hosts, name string, do func(context.Context)) {
	t := time.NewTicker(k.o.Times.Renew())
	defer t.Stop()
	var stop func()
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	for {
		has := false
		if k.Live() {
			var err error
			if has, err = takeDuty(ctx, hosts, name); err != nil && ctx.Err() == nil {
				k.o.Log.Warn("cannot determine which host is on duty", "duty", name, "error", err)
			}
		}
		if has && stop == nil {
			dctx, cancel := context.WithCancel(ctx)
			done := make(chan struct{})
			go func() {
				defer close(done)
				do(dctx)
			}()
			stop = func() { cancel(); <-done }
			k.o.Log.Info("this host is on duty for all", "duty", name)
		} else if !has && stop != nil {
			stop()
			stop = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// takeDuty takes a duty that no live host holds. It looks first, since reading is cheap and all
// who take wait for one lock.
func takeDuty(ctx context.Context, hosts store.Hosts, name string) (bool, error) {
	o, err := hosts.DutyHost(ctx, name)
	if err != nil || o.Host != "" && o.Host != hosts.Self() && !o.Dead {
		return false, err
	}
	return hosts.TakeDuty(ctx, name)
}

// GiveUpDead gives up hosts that died, until ctx ends. fate decides what becomes of their
// sandboxes.
func (k *Keeper) GiveUpDead(ctx context.Context, hosts store.Hosts, fate store.Fate) {
	t := time.NewTicker(k.o.Times.Renew())
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if !k.Steady() {
			continue
		}
		done, err := hosts.GiveUpHosts(ctx, k.o.Times.Grace(), fate)
		k.o.Counts.GivenUp.Add(int64(len(done)))
		for _, b := range done {
			k.o.Counts.LostPaused.Add(int64(b.Paused))
			k.o.Counts.LostEnded.Add(int64(b.Ended))
			k.o.Log.Warn("a host is dead", "host", b.Host, "epoch", b.Epoch, "free", b.Freed, "waiting_for_it", b.Kept, "paused", b.Paused, "ended", b.Ended)
		}
		if len(done) > 0 && k.o.GaveUp != nil {
			k.o.GaveUp(done)
		}
		if err != nil && ctx.Err() == nil {
			k.o.Log.Error("cannot give up a dead host; trying again", "error", err)
		}
	}
}
