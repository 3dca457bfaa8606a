package lifecycle

import (
	"context"
	"io"
	"slices"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/internal/random"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

// A sandbox moves to another host in one request from this one: the offer and, once it is
// accepted, all of its snapshots, then, with the machine frozen, its memory. The other host
// restores it with its network closed, and becomes the owner by one change in the database,
// which names the epoch of this host and the attempt. Any failure before that change leaves the
// machine here. Before it is thawed, its row is changed so that the other host's change would
// fail. So whatever dies at whatever moment, exactly one host owns it.

// departure is one attempt to move a sandbox to another host.
type departure struct {
	s     *Service
	id    string
	how   store.Departure
	offer store.Offer

	// The following is set by send, which may not have been called.

	sb     *store.Sandbox
	l      *instance.Instance // nil for a paused sandbox
	unlock func()
	unpark func()
	letGo  func() // resumes its checkpoints
	draft  blob.Draft
	// stopped says that the machine is frozen, since the given time.
	stopped bool
	since   time.Time
	// before is the snapshot of the previous pause.
	before string
	sent   []string
}

// Depart moves a sandbox to another host. On an error it stays here, unchanged. refused says
// that the other host did not accept it.
func (s *Service) Depart(ctx context.Context, id string, how store.Departure) (still time.Duration, refused bool, err error) {
	ctx = context.WithoutCancel(ctx)
	d := &departure{s: s, id: id, how: how, unlock: func() {}, unpark: func() {}, letGo: func() {}}
	if err := d.describe(ctx); err != nil {
		return 0, false, err
	}
	carried, err := how.Carry(ctx, d.offer, func(w io.Writer) error { return d.send(ctx, w) })
	defer func() {
		if d.draft != nil {
			d.draft.Discard()
		}
		d.letGo()
		d.unlock()
		d.unpark()
	}()
	if carried != store.CarriedOver && d.sb != nil && !d.takeBack(ctx) {
		carried = store.CarriedOver // the move succeeded, but the answer was lost
	}
	if carried == store.CarriedOver {
		return d.complete(ctx), false, nil
	}
	return 0, carried == store.CarriedRefused, err
}

// describe fills in the offer.
func (d *departure) describe(ctx context.Context) error {
	s := d.s
	sb, err := s.ledger.Sandbox(ctx, d.id)
	if err != nil {
		return err
	}
	d.offer = store.Offer{
		ID: sb.ID, ProjectID: sb.ProjectID, State: sb.State, Attempt: random.Hex(8), Epoch: d.how.Epoch, Engine: sb.Engine,
		Kind: bothy.SnapshotMemory, Template: sb.Template, TemplateDigest: sb.TemplateDigest, MemoryMB: sb.MemoryMB,
	}
	l := s.instance(d.id)
	switch {
	case sb.State == bothy.StatePaused:
		m, release, err := d.manifest(ctx, sb.SnapshotID)
		if err != nil {
			return err
		}
		defer release()
		d.offer.Engine, d.offer.Build, d.offer.Kind = m.Engine, m.EngineBuild, m.Kind
		d.offer.Processor = m.Processor
		return nil
	case sb.State != bothy.StateRunning || l == nil:
		return s.wrongState(sb)
	}
	d.offer.Build, d.offer.Processor = l.Machine.Build(), s.processorOf(sb)
	if why := s.foreignBuild(sb.Engine, d.offer.Build); why != "" {
		return bothy.Errorf(bothy.CodeConflict, "sandbox %s cannot be moved with its memory: this host no longer has the engine build %s that started it", d.id, d.offer.Build).
			WithHint("Pause and resume it, or let it end on this host.")
	}
	return nil
}

func (d *departure) manifest(ctx context.Context, id string) (*snapshot.Manifest, func(), error) {
	_, m, release, err := d.s.openSnapshot(ctx, id)
	return m, release, err
}

// send sends everything that the other host needs. The sandbox keeps running until its existing
// snapshots are sent.
func (d *departure) send(ctx context.Context, w io.Writer) error {
	if err := failpoint.Hit("move.accepted"); err != nil {
		return err
	}
	to, err := snapshot.NewSender(w)
	if err != nil {
		return err
	}
	if err := d.holdCheckpoints(ctx); err != nil {
		return err
	}
	if err := d.sendSnapshots(ctx, to); err != nil {
		return err
	}
	d.unpark = d.how.Park(ctx)
	if d.unlock, err = d.s.ledger.LockFor(ctx, d.id); err != nil {
		d.unlock = func() {}
		return err
	}
	if err := d.stop(ctx); err != nil {
		return err
	}
	if err := failpoint.Hit("move.stopped"); err != nil {
		return err
	}
	// Send snapshots that were made meanwhile.
	if err := d.sendSnapshots(ctx, to); err != nil {
		return err
	}
	if d.l != nil {
		m := &snapshot.Manifest{
			ID: d.sb.SnapshotID, ProjectID: d.sb.ProjectID, SandboxID: d.id, Kind: bothy.SnapshotMemory, Engine: d.sb.Engine, EngineBuild: d.offer.Build,
			GuestKey: d.sb.GuestKey, Processor: d.s.processorOf(d.sb), Sandbox: snapshot.Origin{Template: d.sb.Template, TemplateDigest: d.sb.TemplateDigest}, Fresh: true,
		}
		if err := to.Send(ctx, d.draft.Dir(), m); err != nil {
			return err
		}
	}
	if err := to.Close(); err != nil {
		return err
	}
	return failpoint.Hit("move.sent")
}

// holdCheckpoints stops checkpoints of the sandbox: a new one would have to be sent while it is
// frozen.
func (d *departure) holdCheckpoints(ctx context.Context) error {
	l := d.s.instance(d.id)
	if l == nil {
		return nil
	}
	d.letGo = l.Checkpoints.Hold()
	unlock, err := d.s.ledger.LockFor(ctx, d.id) // wait for a checkpoint in progress
	if err != nil {
		return err
	}
	unlock()
	return nil
}

// sendSnapshots sends the sandbox's snapshots that were not sent yet, except those in the
// object storage.
func (d *departure) sendSnapshots(ctx context.Context, to *snapshot.Sender) error {
	f := bothy.SnapshotFilter{SandboxID: d.id, Limit: 1000}
	for {
		page, err := d.s.o.Store.Snapshots(ctx, d.offer.ProjectID, f)
		if err != nil {
			return err
		}
		for _, n := range page.Items {
			if slices.Contains(d.sent, n.ID) || d.s.remote != nil && n.Durable == bothy.DurableStore {
				continue
			}
			dir, m, release, err := d.s.openSnapshot(ctx, n.ID)
			if bothy.ErrorCode(err) == bothy.CodeSnapshotDamaged && d.offer.Running() {
				d.s.log.Warn("the files of a snapshot are missing; moving its sandbox without it", "snapshot", n.ID, "sandbox", d.id)
				continue
			}
			if err != nil {
				return err
			}
			err = to.Send(ctx, dir, m)
			release()
			if err != nil {
				return err
			}
			d.sent = append(d.sent, n.ID)
		}
		if f.Cursor = page.NextCursor; f.Cursor == "" {
			return nil
		}
	}
}

// stop freezes the sandbox, whose lock is held, and records the attempt in its row. On an error
// it is unchanged.
func (d *departure) stop(ctx context.Context) error {
	s := d.s
	sb, err := s.ledger.Sandbox(ctx, d.id)
	if err != nil {
		return err
	}
	if sb.State != d.offer.State {
		return bothy.Errorf(bothy.CodeConflict, "sandbox %s changed during the move: it is %s", d.id, sb.State).WithHint("Move it again.")
	}
	sb.Moving = d.offer.Attempt
	if sb.State == bothy.StatePaused {
		if err := s.ledger.Put(ctx, sb); err != nil {
			return err
		}
		d.sb = sb
		return nil
	}
	l := s.instance(d.id)
	if l == nil {
		return s.wrongState(sb)
	}
	if d.draft, err = s.o.Blobs.Create(ctx, instance.NewID("snp")); err != nil {
		return snapshotError(err)
	}
	l.Activity.Close()
	d.before = sb.SnapshotID
	// If this server dies, the next one finds no such snapshot and undoes the pause.
	sb.SnapshotID, sb.EarlierSnapshotID = instance.NewID("snp"), d.before
	if err := s.ledger.Transition(ctx, sb, bothy.StatePausing); err != nil {
		l.Activity.Reopen()
		return err
	}
	d.sb, d.l, d.since = sb, l, time.Now()
	if err := s.capture(ctx, l, d.draft.Dir(), bothy.SnapshotMemory, false, true, true); err != nil {
		return snapshotError(err)
	}
	d.stopped = true
	return nil
}

// takeBack thaws the sandbox here, and reports whether it did: it does not if the other host
// already owns it. It stays frozen as long as that is unknown.
func (d *departure) takeBack(ctx context.Context) bool {
	s, sb := d.s, d.sb
	sb.Moving = ""
	if d.l != nil {
		sb.State, sb.SnapshotID, sb.EarlierSnapshotID = bothy.StateRunning, d.before, ""
	}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := s.ledger.Put(ctx, sb)
		if bothy.ErrorCode(err) == bothy.CodeMisdirected {
			return false
		}
		if err == nil {
			break
		}
		s.log.Warn("cannot determine the owner of a sandbox whose move failed; it stays frozen; trying again", "sandbox", d.id, "error", err)
		select {
		case <-s.background.Done():
			return true // the next server finds out
		case <-time.After(wait):
		}
	}
	if d.l == nil {
		return true
	}
	if d.stopped {
		if err := s.thaw(ctx, d.l); err != nil {
			s.log.Error("cannot thaw a sandbox whose move failed", "sandbox", d.id, "error", err)
		}
	}
	d.l.Activity.Reopen()
	return true
}

// complete gives up the sandbox that the other host now owns. It returns how long it was frozen.
func (d *departure) complete(ctx context.Context) (still time.Duration) {
	s := d.s
	_ = failpoint.Hit("move.over")
	s.departures.add(d.id, d.how.To)
	s.ledger.Forget(d.id)
	if l := d.l; l != nil {
		still = time.Since(d.since)
		s.setTracked(l, false)
		s.untrackEnding(l)
		s.watchers.must(func() {
			s.machines.Destroy(l.Machine)
			l.Ended()
		})
	}
	// Waiting requests are now sent to the other host.
	d.unlock()
	d.unpark()
	d.unlock, d.unpark = func() {}, func() {}
	if s.remote == nil {
		for _, id := range d.sent {
			if s.heldByTemplate(id) != nil {
				continue
			}
			if err := s.o.Blobs.Remove(ctx, id); err != nil {
				s.log.Warn("cannot delete the files of a snapshot that moved to another host", "snapshot", id, "error", err)
			}
		}
	}
	return still
}
