package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob"
	"github.com/bothy-dev/bothy/internal/cleanup"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/lifecycle/admission"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

// Arrive takes a sandbox that another host offers. body is read only where there is room for
// it. take makes it this host's in the database, and reports whether it did. On an error
// nothing of it is here, and it is still the other host's.
func (s *Service) Arrive(ctx context.Context, o store.Offer, body io.Reader, take func(context.Context, *store.Sandbox) (bool, error)) error {
	a := &arrival{s: s, offer: o, take: take}
	defer a.held.Run()
	defer a.undo.Run()
	if err := a.admit(ctx); err != nil {
		return err
	}
	if err := a.receive(ctx, body); err != nil {
		return err
	}
	if err := failpoint.Hit("move.received"); err != nil {
		return err
	}
	// From here on nothing more is needed of the other host.
	if err := a.wake(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	a.undo.Release()
	return nil
}

// arrival is one sandbox that comes from another host.
type arrival struct {
	s     *Service
	offer store.Offer
	take  func(context.Context, *store.Sandbox) (bool, error)

	t           *bothy.Template
	reservation *admission.Reservation
	// last is what the sandbox is woken from.
	last *frozen
	kept []blob.Draft
	ids  []string

	// held is given back in any case, and undo is done where the sandbox does not come.
	held, undo cleanup.Stack
}

// admit refuses what this host cannot take.
func (a *arrival) admit(ctx context.Context) (err error) {
	s, o := a.s, a.offer
	if s.Here(o.ID) {
		return bothy.Errorf(bothy.CodeConflict, "sandbox %s is here already", o.ID)
	}
	if a.t, err = s.templateOf(ctx, o.ProjectID, o.Template, o.TemplateDigest); err != nil {
		return err
	}
	if err := s.room(); err != nil {
		return err
	}
	if o.Kind == bothy.SnapshotMemory {
		e, err := s.engines.Need(ctx, o.Engine)
		if err != nil {
			return err
		}
		release, why := s.holdBuild(e, o.Build)
		a.held.Add(release)
		if why != "" {
			return bothy.Errorf(bothy.CodeConflict, "this host cannot wake memory of engine build %s, %s", o.Build, why).
				WithHint("Move it to a host with that build.")
		}
		if host := e.Info().Host; !host.Wakes(o.Processor) {
			return bothy.Errorf(bothy.CodeConflict, "this host cannot wake memory that was written on another processor, %s: it has %s", o.Processor, missing(host, o.Processor)).
				WithHint("Move it to a host with such a processor: `bothy host ls -o json` lists them.")
		}
	}
	if !o.Running() {
		return nil
	}
	if a.reservation, err = s.admission.ReserveArrival(o.ProjectID); err != nil {
		return err
	}
	a.held.Add(a.reservation.Release)
	return nil
}

// receive writes the files of the snapshots, as drafts.
func (a *arrival) receive(ctx context.Context, body io.Reader) error {
	s := a.s
	from, err := snapshot.NewReceiver(body)
	if err != nil {
		return err
	}
	defer from.Close()
	for {
		m, err := from.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return cutOff(err)
		}
		if m.SandboxID != a.offer.ID || m.ProjectID != "" && m.ProjectID != a.offer.ProjectID {
			return bothy.Errorf(bothy.CodeInvalid, "snapshot %s is not of sandbox %s", m.ID, a.offer.ID)
		}
		draft, err := s.o.Blobs.Create(ctx, m.ID)
		if err != nil {
			return snapshotError(err)
		}
		a.held.Add(draft.Discard)
		if err := from.Receive(ctx, draft.Dir(), m); err != nil {
			return cutOff(err)
		}
		if m.Fresh {
			a.last = &frozen{dir: draft.Dir(), m: m, verified: func() error { return nil }}
			continue
		}
		a.kept, a.ids = append(a.kept, draft), append(a.ids, m.ID)
	}
	if a.offer.Running() != (a.last != nil) {
		return bothy.Errorf(bothy.CodeInvalid, "what came of sandbox %s is not what was offered", a.offer.ID)
	}
	// What is kept is safe before the sandbox is this host's.
	for i, draft := range a.kept {
		id := a.ids[i]
		if s.remote == nil {
			// It may have been here before.
			if err := s.o.Blobs.Remove(ctx, id); err != nil {
				return err
			}
		}
		if err := draft.Flush(ctx); err != nil {
			return snapshotError(err)
		}
		if err := draft.Commit(ctx); err != nil {
			return snapshotError(err)
		}
		if s.remote == nil {
			a.undo.Add(func() { _ = s.o.Blobs.Remove(context.WithoutCancel(ctx), id) })
		}
	}
	return nil
}

// cutOff is what is said of a stream that ends early, unless something is known better.
func cutOff(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return bothy.Errorf(bothy.CodeConflict, "the other host stopped sending").Because(err)
	}
	return snapshotError(err)
}

// wake makes the sandbox this host's, awake if it was.
func (a *arrival) wake(ctx context.Context) error {
	s := a.s
	// Who comes for it from the moment on that it is here waits.
	unlock, err := s.ledger.LockFor(ctx, a.offer.ID)
	if err != nil {
		return err
	}
	defer unlock()
	sb, err := s.o.Store.Sandbox(ctx, a.offer.ID)
	if err != nil {
		return err
	}
	if sb.Moving != a.offer.Attempt {
		return bothy.Errorf(bothy.CodeConflict, "the other host has changed its mind about sandbox %s", sb.ID)
	}
	if !a.offer.Running() {
		if err := a.own(ctx, sb); err != nil {
			return err
		}
		a.arrived(sb)
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, s.engines.Patience(sb.Engine, instance.StartTimeout))
	defer cancel()
	machine, how, err := s.restoreMachine(bounded, sb, a.t, a.last, false)
	if bothy.ErrorCode(err) == bothy.CodeConflict {
		// It has just left this host, and its machine here is not gone yet.
		machine, how, err = s.restoreMachine(bounded, sb, a.t, a.last, true)
	}
	if err != nil {
		return err
	}
	a.undo.Add(func() { s.machines.Destroy(machine) })
	if how.Kind != bothy.SnapshotMemory {
		return bothy.Errorf(bothy.CodeConflict, "its memory cannot be woken on this host: %s", how.Detail)
	}
	s.sees(sb, a.last.m)
	l, err := s.machines.Attach(ctx, sb, machine, a.last.m.GuestKey)
	if err != nil {
		return err
	}
	a.undo.Add(l.Detach)
	// Nothing leaves it until it is this host's.
	shut := *sb
	shut.Network = bothy.Network{Mode: bothy.NetworkOff}
	if err := s.machines.Identify(bounded, l, &shut, a.t, instance.NewSteps()); err != nil {
		return instance.StartError(machine, err)
	}
	if err := l.Limit(bounded); err != nil {
		return err
	}
	info := s.engines.Get(sb.Engine).Info()
	sb.GuestKey, sb.EngineState, sb.Acceleration, sb.Kernel = shut.GuestKey, machine.State(), info.Acceleration, info.Kernel
	sb.MeterState = s.o.Meter.Starting(ctx, sb, l.Reading)
	// It sleeps in nothing: what it was carried in is gone.
	sb.State, sb.SnapshotID, sb.EarlierSnapshotID = bothy.StateRunning, sb.EarlierSnapshotID, ""
	if err := failpoint.Hit("move.awake"); err != nil {
		return err
	}
	if err := a.own(ctx, sb); err != nil {
		return err
	}
	if err := instance.OpenNetwork(l.Gateway, sb); err != nil {
		s.log.Error("the network of a sandbox that was moved here stays shut", "sandbox", sb.ID, "error", err)
	}
	a.arrived(sb)
	s.track(l, sb, a.reservation)
	return nil
}

// own makes the sandbox this host's. Where no answer comes the database is asked until it
// says whose it is.
func (a *arrival) own(ctx context.Context, sb *store.Sandbox) error {
	s := a.s
	sb.Moving = a.offer.Attempt
	defer func() { sb.Moving = "" }()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		taken, err := a.take(ctx, sb)
		if err == nil && !taken {
			// An attempt before, whose answer was lost, may have done it.
			taken, err = a.mine(ctx, sb)
		}
		switch {
		case err == nil && taken:
			_ = failpoint.Hit("move.taken")
			return nil
		case err == nil:
			return bothy.Errorf(bothy.CodeConflict, "the other host has taken sandbox %s back", sb.ID)
		case s.background.Err() != nil:
			// The next server finds out whether what is here is its own.
			a.undo.Release()
			return err
		}
		s.log.Warn("it is not known whether a sandbox that is moved here is this host's", "sandbox", sb.ID, "error", err)
		select {
		case <-s.background.Done():
		case <-time.After(wait):
		}
	}
}

// mine reports whether a sandbox is this host's, as it was stored by take.
func (a *arrival) mine(ctx context.Context, sb *store.Sandbox) (bool, error) {
	own, err := a.s.o.Store.OwnSandboxesInState(ctx, sb.State)
	for _, o := range own {
		if o.ID == sb.ID {
			return true, nil
		}
	}
	return false, err
}

// arrived notes that a sandbox is this host's.
func (a *arrival) arrived(sb *store.Sandbox) {
	a.s.departures.remove(sb.ID)
	for _, id := range a.ids {
		a.s.keep(id)
	}
	a.s.log.Info("a sandbox was moved here", "sandbox", sb.ID, "state", sb.State, "snapshots", fmt.Sprint(len(a.ids)))
}
