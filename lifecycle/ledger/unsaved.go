package ledger

import (
	"context"
	"sync"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// maxUnsent limits the events that wait for the store; the oldest are dropped first.
const maxUnsent = 1000

// unsaved is what the store could not take yet. Readers see it as if it were stored.
type unsaved struct {
	mu     sync.Mutex
	rows   map[string]unsavedRow // by sandbox
	events []bothy.Event
}

type unsavedRow struct {
	sb   store.Sandbox
	then func() // once it is stored; may be nil
}

// Sandbox returns the current row of a sandbox.
func (g *Ledger) Sandbox(ctx context.Context, id string) (*store.Sandbox, error) {
	if sb := g.unsaved.row(id); sb != nil {
		return sb, nil
	}
	return g.o.Store.Sandbox(ctx, id)
}

func (u *unsaved) row(id string) *store.Sandbox {
	u.mu.Lock()
	defer u.mu.Unlock()
	if r, ok := u.rows[id]; ok {
		return &r.sb
	}
	return nil
}

// Put stores a sandbox, whose lock the caller holds.
func (g *Ledger) Put(ctx context.Context, sb *store.Sandbox) error {
	return g.put(ctx, sb, g.o.Store.PutSandbox)
}

func (g *Ledger) put(ctx context.Context, sb *store.Sandbox, put func(context.Context, *store.Sandbox) error) error {
	err := g.checkStored(ctx, sb)
	if err == nil {
		err = put(ctx, sb)
	}
	if err != nil {
		g.refused(ctx, sb, err)
		return err
	}
	g.stored.note(sb)
	g.unsaved.mu.Lock()
	r := g.unsaved.rows[sb.ID]
	delete(g.unsaved.rows, sb.ID)
	g.unsaved.mu.Unlock()
	if r.then != nil {
		r.then()
	}
	return nil
}

// storeOrRetry stores something that has already happened to a sandbox, and then calls then. If the
// store cannot take it now, because the disk is full for example, it is kept and stored later.
// The error says that it never will, because the row is another host's or not as it was read, or
// this server no longer has the store.
func (g *Ledger) storeOrRetry(ctx context.Context, sb *store.Sandbox, cannot error, then func()) error {
	if cannot == nil {
		cannot = g.Put(context.WithoutCancel(ctx), sb)
	}
	if cannot == nil {
		if then != nil {
			then()
		}
		return nil
	}
	if isFinal(cannot) {
		// Whatever owns or has changed it records what becomes of it.
		g.unsaved.forget(sb.ID)
		return cannot
	}
	g.o.Log.Error("cannot store the state of a sandbox; trying again", "sandbox", sb.ID, "state", sb.State, "error", cannot)
	g.unsaved.mu.Lock()
	if g.unsaved.rows == nil {
		g.unsaved.rows = map[string]unsavedRow{}
	}
	g.unsaved.rows[sb.ID] = unsavedRow{*sb, then}
	g.unsaved.mu.Unlock()
	g.Retry("store "+sb.ID, func(ctx context.Context) error { return g.storeRow(ctx, sb.ID) })
	return nil
}

func (g *Ledger) storeRow(ctx context.Context, id string) error {
	unlock, err := g.LockToWork(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	sb := g.unsaved.row(id)
	if sb == nil {
		return nil
	}
	err = g.Put(ctx, sb)
	if isFinal(err) {
		g.unsaved.forget(id)
		return nil
	}
	return err
}

func (u *unsaved) forget(id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.rows, id)
}

// Flush makes a last attempt to store what is unsaved.
func (g *Ledger) Flush(ctx context.Context) {
	g.unsaved.mu.Lock()
	rows := make([]store.Sandbox, 0, len(g.unsaved.rows))
	for _, r := range g.unsaved.rows {
		rows = append(rows, r.sb)
	}
	g.unsaved.mu.Unlock()
	for i := range rows {
		if err := g.Put(ctx, &rows[i]); err != nil {
			g.o.Log.Error("cannot store the state of a sandbox", "sandbox", rows[i].ID, "state", rows[i].State, "error", err)
		}
	}
	if err := g.sendEvents(ctx); err != nil {
		g.o.Log.Error("cannot store the last events", "error", err)
	}
}

// Unsaved returns the unsaved row of a sandbox, or nil.
func (g *Ledger) Unsaved(id string) *store.Sandbox { return g.unsaved.row(id) }

// CountUnsaved counts the unsaved rows and events.
func (g *Ledger) CountUnsaved() (rows, events int) {
	g.unsaved.mu.Lock()
	defer g.unsaved.mu.Unlock()
	return len(g.unsaved.rows), len(g.unsaved.events)
}
