// Package cluster makes several servers one: hosts that share a database. It knows whether
// this host may go on, gives up hosts that died, leads each request to the host that has its
// sandbox, and chooses the host of a new one. server gives it the store and what to do.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy/store"
)

// Times are those of a lease.
type Times struct {
	// Lease is for how long a host is taken for alive after a renewal.
	Lease time.Duration
}

// Renew is how often the lease is renewed.
func (t Times) Renew() time.Duration { return t.Lease / 5 }

// Suspend is after what time without a renewal a host freezes its sandboxes: well before
// another may take them.
func (t Times) Suspend() time.Duration { return t.Lease * 3 / 5 }

// Grace is how long after the end of its lease a host is given up.
func (t Times) Grace() time.Duration { return t.Lease / 3 }

// look is how often the lease is looked at.
const look = 100 * time.Millisecond

// KeeperOptions are what a Keeper is made of.
type KeeperOptions struct {
	Times Times
	// Renewed is when the renewal was sent that came through last, and Lost is closed when
	// this host has been given up.
	Renewed func() time.Time
	Lost    <-chan struct{}
	// Wall is what the clock on the wall said at a moment. Optional.
	Wall func(moment time.Time) time.Time
	// Suspend freezes everything, Unsuspend lets it go on, and Abandon ends it. They are
	// called one at a time.
	Suspend, Unsuspend, Abandon func()
	// Older reports, once Lost is closed, that this host was not given up: its database is
	// an older one. Its sandboxes stand still then, and Keep is called.
	Older func() bool
	Keep  func()
	// Buried is told of hosts that this one has given up. Optional.
	Buried func([]store.Burial)
	Log    *slog.Logger
	Counts *Counts
}

// Keeper knows whether this host may go on.
type Keeper struct {
	o KeeperOptions
	// suspended is set from before Suspend until after Unsuspend.
	suspended atomic.Bool
	gone      atomic.Bool
	// steady is since when renewals have come in time, in nanoseconds of the clock's reading
	// since begun; 0 while they do not.
	begun  time.Time
	steady atomic.Int64
}

// NewKeeper makes a keeper, of a host whose lease has just begun.
func NewKeeper(o KeeperOptions) *Keeper {
	o.Counts = cmp.Or(o.Counts, &Counts{})
	if o.Wall == nil {
		o.Wall = func(moment time.Time) time.Time { return moment.Round(0) }
	}
	return &Keeper{o: o, begun: time.Now()}
}

// fresh reports whether the last renewal is new enough. A process that was stopped, and a
// machine that was, must find out by themselves: the one by the clock that nobody sets, the
// other by that on the wall.
func (k *Keeper) fresh() bool {
	age, wall := k.age()
	most := k.o.Times.Suspend()
	return age < most && wall < most && wall > -most
}

func (k *Keeper) age() (age, wall time.Duration) {
	now, last := time.Now(), k.o.Renewed()
	return now.Sub(last), k.o.Wall(now).Sub(k.o.Wall(last))
}

// LeaseAge is how long ago the renewal was sent that came through last.
func (k *Keeper) LeaseAge() time.Duration { age, _ := k.age(); return age }

// Live reports whether this host may act for its sandboxes.
func (k *Keeper) Live() bool { return !k.suspended.Load() && !k.gone.Load() && k.fresh() }

// ErrGone says that the others have given this host up.
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

// Steady reports whether this host has had the database for so long that a host which has not
// renewed its lease meanwhile is dead: after an outage of the database all leases have run out.
func (k *Keeper) Steady() bool {
	since := k.steady.Load()
	return since != 0 && k.Live() && time.Since(k.begun)-time.Duration(since) >= k.o.Times.Lease+k.o.Times.Grace()
}

// Run keeps this host to its lease, until ctx ends or the host is given up.
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
				k.o.Log.Error("the database is older than this host; its sandboxes stand still and are kept")
				k.o.Suspend()
				k.o.Keep()
				return
			}
			k.o.Log.Error("the other hosts have given this one up; its sandboxes are ended here")
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
		k.o.Log.Warn("the lease of this host could not be renewed, so its sandboxes stand still", "since", age.Round(time.Millisecond).String())
		k.o.Suspend()
	case fresh && k.suspended.Load():
		k.o.Unsuspend()
		k.suspended.Store(false)
		k.o.Counts.Thaws.Add(1)
		k.o.Log.Info("the lease of this host is renewed, and its sandboxes go on")
	}
}

// Duty runs work that one host does for all, for as long as this one has it.
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
				k.o.Log.Warn("it cannot be found out which host has a duty", "duty", name, "error", err)
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
			k.o.Log.Info("this host works for all", "duty", name)
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

// takeDuty takes a duty that no other host has. To look is cheap; all who take wait for each other.
func takeDuty(ctx context.Context, hosts store.Hosts, name string) (bool, error) {
	o, err := hosts.DutyHost(ctx, name)
	if err != nil || o.Host != "" && o.Host != hosts.Self() && !o.Dead {
		return false, err
	}
	return hosts.TakeDuty(ctx, name)
}

// Sexton gives up hosts that died, until ctx ends. fate decides what becomes of their sandboxes.
func (k *Keeper) Sexton(ctx context.Context, hosts store.Hosts, fate store.Fate) {
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
		done, err := hosts.BuryHosts(ctx, k.o.Times.Grace(), fate)
		k.o.Counts.GivenUp.Add(int64(len(done)))
		for _, b := range done {
			k.o.Counts.LostPaused.Add(int64(b.Paused))
			k.o.Counts.LostEnded.Add(int64(b.Ended))
			k.o.Log.Warn("a host is dead", "host", b.Host, "epoch", b.Epoch, "free", b.Freed, "waiting_for_it", b.Kept, "paused", b.Paused, "ended", b.Ended)
		}
		if len(done) > 0 && k.o.Buried != nil {
			k.o.Buried(done)
		}
		if err != nil && ctx.Err() == nil {
			k.o.Log.Error("a dead host could not be given up; it is tried again", "error", err)
		}
	}
}
