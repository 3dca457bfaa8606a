package ledger

import (
	"context"
	"errors"
	"sync"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Nothing but this server should change the rows of its sandboxes. If something else has, because
// the database was restored from a backup, two servers use one state, or another host has
// replaced this one, a change is refused and reported. The next operation reads the row again.
// Only if that is older than what this server has stored, changes are refused until the server
// is restarted: which of the two is right cannot be known.

// stored are the versions that this server has stored of sandboxes that have not ended.
type stored struct {
	mu       sync.Mutex
	versions map[string]int64
	// reported are the versions in the store that have been reported as conflicts.
	reported map[string]int64
}

// note records a version of a sandbox that the store has.
func (v *stored) note(sb *store.Sandbox) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.reported, sb.ID)
	if sb.State.Ended() {
		delete(v.versions, sb.ID)
		return
	}
	if v.versions == nil {
		v.versions = map[string]int64{}
	}
	v.versions[sb.ID] = sb.Version
}

func (v *stored) forget(id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.versions, id)
	delete(v.reported, id)
}

// last returns the last version that this server stored of a sandbox, or 0.
func (v *stored) last(id string) int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.versions[id]
}

// report reports whether a conflict is to be reported: each is once.
func (v *stored) report(c *store.Conflict) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if found, ok := v.reported[c.Sandbox]; ok && found == c.Found {
		return false
	}
	if v.reported == nil {
		v.reported = map[string]int64{}
	}
	v.reported[c.Sandbox] = c.Found
	return true
}

// NoteVersion notes the version of a sandbox that this server has taken over: older ones are refused from
// now on.
func (g *Ledger) NoteVersion(sb *store.Sandbox) { g.stored.note(sb) }

// Forget forgets which version of a sandbox this server has stored, since another host has it now.
func (g *Ledger) Forget(id string) { g.stored.forget(id) }

// checkStored returns an error if a sandbox was read from a store that has lost what this server
// stored.
func (g *Ledger) checkStored(ctx context.Context, sb *store.Sandbox) error {
	last := g.stored.last(sb.ID)
	if sb.Version >= last {
		return nil
	}
	c := &store.Conflict{Sandbox: sb.ID, Expected: last, Found: sb.Version}
	if row, err := g.o.Store.Sandbox(ctx, sb.ID); err == nil && row.Version >= last {
		c.Expected, c.Found = sb.Version, row.Version // the store has everything, and sb is what is old
	}
	return c.AsError()
}

// isConflict reports whether an error means that something else has changed a sandbox's row.
func isConflict(err error) bool { return errors.As(err, new(*store.Conflict)) }

// isFinal reports whether it is pointless to try a failed change again.
func isFinal(err error) bool {
	return NotOurs(err) || isConflict(err)
}

// NotOurs reports whether a change failed because another host owns the sandbox, or this server no
// longer has the store: what becomes of the sandbox is recorded elsewhere.
func NotOurs(err error) bool {
	return bothy.ErrorCode(err) == bothy.CodeMisdirected || errors.Is(err, store.ErrLost)
}

// refused handles the refusal of a change by the store.
func (g *Ledger) refused(ctx context.Context, sb *store.Sandbox, err error) {
	if bothy.ErrorCode(err) == bothy.CodeMisdirected {
		g.stored.forget(sb.ID)
		if g.o.Elsewhere != nil {
			g.o.Elsewhere(sb.ID)
		}
		return
	}
	var c *store.Conflict
	if !errors.As(err, &c) || !g.stored.report(c) {
		return
	}
	g.o.Log.Error("a sandbox was changed by something other than this server, so a change was not stored",
		"sandbox", sb.ID, "state", sb.State, "expected_version", c.Expected, "version", c.Found, "error", err)
	g.Emit(ctx, bothy.EventSandboxConflict, sb, map[string]string{"detail": bothy.AsError(err).Detail})
}
