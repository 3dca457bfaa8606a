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

// Arrive receives a sandbox from another host. body is read only if there is capacity. take
// makes this host the owner in the database, and reports whether it did. On an error nothing of
// it stays here, and the other host still owns it.
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
	// From here on the other host is not needed any more.
	if err := a.wake(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	a.undo.Release()
	return nil
}

// arrival is a sandbox that is arriving from another host.
type arrival struct {
	s     *Service
	offer store.Offer
	take  func(context.Context, *store.Sandbox) (bool, error)

	t           *store.Template
	reservation *admission.Reservation
	// last is the snapshot that the sandbox is restored from.
	last *openedSnapshot
	kept []blob.Draft
	ids  []string

	// held is always released, and undo runs if the sandbox does not arrive.
	held, undo cleanup.Stack
}

// admit returns an error if this host cannot take the sandbox.
func (a *arrival) admit(ctx context.Context) (err error) {
	s, o := a.s, a.offer
	if s.Here(o.ID) {
		return bothy.Errorf(bothy.CodeConflict, "sandbox %s is already on this host", o.ID)
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
			return bothy.Errorf(bothy.CodeConflict, "this host cannot restore memory of engine build %s, %s", o.Build, why).
				WithHint("Move it to a host with that build.")
		}
		if host := e.Info().Host; !host.Wakes(o.Processor) {
			return bothy.Errorf(bothy.CodeConflict, "this host cannot restore memory that was written on another processor, %s: it has %s", o.Processor, missing(host, o.Processor)).
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

// receive writes the files of the snapshots into drafts.
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
			return bothy.Errorf(bothy.CodeInvalid, "snapshot %s does not belong to sandbox %s", m.ID, a.offer.ID)
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
			a.last = &openedSnapshot{dir: draft.Dir(), m: m, verified: func() error { return nil }}
			continue
		}
		a.kept, a.ids = append(a.kept, draft), append(a.ids, m.ID)
	}
	if a.offer.Running() != (a.last != nil) {
		return bothy.Errorf(bothy.CodeInvalid, "the snapshots received for sandbox %s do not match the offer", a.offer.ID)
	}
	// Make its snapshots durable before this host owns the sandbox.
	for i, draft := range a.kept {
		id := a.ids[i]
		if s.remote == nil {
			// A copy may be left from when the sandbox was here before.
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

// cutOff returns the error for a stream that ends early.
func cutOff(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return bothy.Errorf(bothy.CodeConflict, "the other host stopped sending").Because(err)
	}
	return snapshotError(err)
}

// wake makes this host the owner, and resumes the sandbox if it was running.
func (a *arrival) wake(ctx context.Context) error {
	s := a.s
	// Requests that already find the sandbox here must wait.
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
		return bothy.Errorf(bothy.CodeConflict, "the other host has cancelled the move of sandbox %s", sb.ID)
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
		// The sandbox has just left this host, and its old machine still exists.
		machine, how, err = s.restoreMachine(bounded, sb, a.t, a.last, true)
	}
	if err != nil {
		return err
	}
	a.undo.Add(func() { s.machines.Destroy(machine) })
	if how.Kind != bothy.SnapshotMemory {
		return bothy.Errorf(bothy.CodeConflict, "its memory cannot be restored on this host: %s", how.Detail)
	}
	s.setProcessor(sb, a.last.m)
	l, err := s.machines.Attach(ctx, sb, machine, a.last.m.GuestKey)
	if err != nil {
		return err
	}
	a.undo.Add(l.Detach)
	// Keep its network closed until this host owns it.
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
	// The snapshot that carried its memory is not kept.
	sb.State, sb.SnapshotID, sb.EarlierSnapshotID = bothy.StateRunning, sb.EarlierSnapshotID, ""
	if err := failpoint.Hit("move.awake"); err != nil {
		return err
	}
	if err := a.own(ctx, sb); err != nil {
		return err
	}
	if err := instance.OpenNetwork(l.Gateway, sb); err != nil {
		s.log.Error("cannot open the network of a sandbox that moved here; trying again", "sandbox", sb.ID, "error", err)
		s.ledger.Retry("network "+sb.ID, func(ctx context.Context) error { return s.openNetworkAgain(ctx, l) })
	}
	a.arrived(sb)
	s.track(l, sb, a.reservation)
	return nil
}

// openNetworkAgain opens the network of a sandbox that moved here, if it is still here.
func (s *Service) openNetworkAgain(ctx context.Context, l *instance.Instance) error {
	unlock, err := s.ledger.LockToWork(ctx, l.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if s.instance(l.ID) != l {
		return nil
	}
	sb, err := s.ledger.Sandbox(ctx, l.ID)
	if err != nil {
		return err
	}
	return instance.OpenNetwork(l.Gateway, sb)
}

// own makes this host the owner. If the result is unknown, it asks the database until it is
// known.
func (a *arrival) own(ctx context.Context, sb *store.Sandbox) error {
	s := a.s
	sb.Moving = a.offer.Attempt
	defer func() { sb.Moving = "" }()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		taken, err := a.take(ctx, sb)
		if err == nil && !taken {
			// An earlier attempt may have succeeded although its answer was lost.
			taken, err = a.isOwner(ctx, sb)
		}
		switch {
		case err == nil && taken:
			s.ledger.NoteVersion(sb)
			_ = failpoint.Hit("move.taken")
			return nil
		case err == nil:
			return bothy.Errorf(bothy.CodeConflict, "the other host has taken sandbox %s back", sb.ID)
		case s.background.Err() != nil:
			// The next server finds out whether it owns what is here.
			a.undo.Release()
			return err
		}
		s.log.Warn("cannot determine whether this host owns a sandbox that is moving here; trying again", "sandbox", sb.ID, "error", err)
		select {
		case <-s.background.Done():
		case <-time.After(wait):
		}
	}
}

// isOwner reports whether the database has this host as the owner.
func (a *arrival) isOwner(ctx context.Context, sb *store.Sandbox) (bool, error) {
	own, err := a.s.o.Store.OwnSandboxesInState(ctx, sb.State)
	for _, o := range own {
		if o.ID == sb.ID {
			sb.Version = o.Version
			return true, nil
		}
	}
	return false, err
}

// arrived records that the sandbox is here.
func (a *arrival) arrived(sb *store.Sandbox) {
	a.s.departures.remove(sb.ID)
	for _, id := range a.ids {
		a.s.keep(id)
	}
	a.s.log.Info("a sandbox moved here", "sandbox", sb.ID, "state", sb.State, "snapshots", fmt.Sprint(len(a.ids)))
}
