package server

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bothy-dev/bothy/store"
)

// oneTree is what a store has of one tree.
type oneTree struct {
	store.Shared
	t store.Tree
}

func (o *oneTree) SetTreeNeeded(_ context.Context, _, _ string, needed bool) error {
	now := time.Now()
	switch {
	case needed:
		o.t.UnneededAt = nil
	case o.t.UnneededAt == nil:
		o.t.UnneededAt = &now
	}
	return nil
}

func (o *oneTree) CondemnTree(_ context.Context, _, _ string, before time.Time) (bool, error) {
	if !o.t.Condemned() && (o.t.StoredAt == nil || o.t.UnneededAt == nil || o.t.UnneededAt.After(before)) {
		return false, nil
	}
	at := store.Condemned
	o.t.StoredAt = &at
	return true, nil
}

func (o *oneTree) SetTreeStored(_ context.Context, _, _ string, at *time.Time) error {
	o.t.StoredAt = at
	return nil
}

// What nothing needs leaves the object storage after the grace time and not before, and a
// removal that fails is taken up again.
func TestTreesThatNothingNeedsGo(t *testing.T) {
	at := time.Now()
	o := &oneTree{t: store.Tree{Kind: store.TreeTemplates, Name: "a", StoredAt: &at}}
	var need bool
	var removed int
	var away error
	collect := func(grace time.Duration) bool {
		t.Helper()
		now := o.t
		gone, err := collectTree(t.Context(), o, &now, func(context.Context, *store.Tree) (bool, error) { return need, nil }, grace,
			func(context.Context, string, string) error { removed++; return away })
		if !errors.Is(err, away) {
			t.Fatal(err)
		}
		return gone
	}
	need = true
	if collect(0) || o.t.UnneededAt != nil {
		t.Error("what is needed was to go")
	}
	need = false
	if collect(time.Hour) || o.t.UnneededAt == nil || o.t.StoredAt == nil {
		t.Errorf("within the grace time: %+v", o.t)
	}
	need = true
	if collect(time.Hour) || o.t.UnneededAt != nil {
		t.Error("it is needed again, and that is not noted")
	}
	need, away = false, errors.New("away")
	if collect(0) || !o.t.Condemned() {
		t.Errorf("a removal that failed: %+v", o.t)
	}
	away = nil
	if !collect(time.Hour) || o.t.StoredAt != nil || removed != 2 {
		t.Errorf("afterwards: %+v, %d tries", o.t, removed)
	}
	if collect(0) || removed != 2 {
		t.Error("what is not there was removed again")
	}
}
