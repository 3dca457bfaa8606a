package lifecycle_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/lifecycle/warm"
	"github.com/bothy-dev/bothy/store"
)

// makings records the templates that are made.
type makings struct{ made []*store.Template }

func (m *makings) Capture(_ context.Context, t, _ *store.Template, _ string) error {
	m.made = append(m.made, t)
	return nil
}

func (m *makings) Compare(context.Context, *store.Template, string, *store.Template, string, int) (*bothy.SnapshotChanges, error) {
	return nil, errors.New("not implemented")
}

func (m *makings) HoldsSnapshot(string) (*store.Template, error) { return nil, nil }

// Before a template with memory is made, its snapshot is restored in a temporary machine as a trial.
func TestMemoryOfATemplateIsTriedFirst(t *testing.T) {
	made, restores := &makings{}, &atomic.Int32{}
	var refuse atomic.Bool
	w := newPoolWorld(t, warm.Options{}, func(w *world) {
		w.change = func(o *lifecycle.Options) { o.TemplateMaker = made }
		w.host.FailRestore = func(string) error {
			restores.Add(1)
			if refuse.Load() {
				return errors.New("a device is missing")
			}
			return nil
		}
	})
	sb := w.create(small("a"))
	capture := func() (*bothy.Template, error) {
		return w.CreateTemplate(w.me(), sb.ID, bothy.TemplateCapture{Name: "server", Memory: true})
	}
	if _, err := capture(); err != nil {
		t.Fatal(err)
	}
	if len(made.made) != 1 || restores.Load() != 1 {
		t.Errorf("%d templates were made, and memory was restored %d times", len(made.made), restores.Load())
	}
	refuse.Store(true)
	if _, err := capture(); bothy.ErrorCode(err) != bothy.CodeTemplateInvalid || bothy.AsError(err).Hint == "" {
		t.Errorf("memory that cannot be restored: %v", err)
	}
	if len(made.made) != 1 {
		t.Error("a template was made from memory that cannot be restored")
	}
	if list, err := w.Snapshots(w.me(), bothy.SnapshotFilter{}); err != nil || len(list.Items) != 1 {
		t.Errorf("snapshots are left: %+v, %v", list, err)
	}
	if ids := w.host.IDs(); len(ids) != 1 || ids[0] != sb.ID {
		t.Errorf("machines are left: %v", ids)
	}
}
