package e2b

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// history is a project's events, and counts how many of them were read.
type history struct {
	bothy.EventService
	bothy.SandboxService
	all  []bothy.Event
	read int
}

func (h *history) tell(list []bothy.Event, fn func(bothy.Event) error) error {
	for _, e := range list {
		h.read++
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

func (h *history) Events(_ context.Context, _ bothy.EventFilter, fn func(bothy.Event) error) error {
	return h.tell(h.all, fn)
}

func (h *history) EventsBackwards(_ context.Context, fn func(bothy.Event) error) error {
	latestFirst := slices.Clone(h.all)
	slices.Reverse(latestFirst)
	return h.tell(latestFirst, fn)
}

func (h *history) Get(_ context.Context, id string) (*bothy.Sandbox, error) {
	for _, e := range h.all {
		if e.SandboxID == id && e.Type == bothy.EventSandboxCreated {
			return &bothy.Sandbox{ID: id, CreatedAt: e.Time}, nil
		}
	}
	return nil, bothy.Errorf(bothy.CodeNotFound, "there is no sandbox %s", id)
}

func TestListOfEvents(t *testing.T) {
	h := &history{}
	begun := time.Unix(1e9, 0)
	for i := range 1000 { // each runs for half an hour
		id := fmt.Sprint("sbx", i)
		for j, kind := range []string{bothy.EventSandboxCreated, bothy.EventBudgetWarning, bothy.EventSandboxEnded} {
			h.all = append(h.all, bothy.Event{ID: int64(3*i + j + 1), Type: kind, SandboxID: id, Time: begun.Add(time.Duration(3*i+j) * 10 * time.Minute)})
		}
	}
	d := New(Services{Events: h, Sandboxes: h}, Config{})
	for _, c := range []struct {
		query, id string
		want      []string
		read      int
	}{
		{"", "", []string{"3000", "2998", "2997", "2995", "2994", "2992", "2991", "2989", "2988", "2986"}, 15},
		{"limit=2&offset=2", "", []string{"2997", "2995"}, 6},
		{"limit=3&orderAsc=true", "", []string{"1", "3", "4"}, 4},
		{"limit=2&types=sandbox.lifecycle.killed", "", []string{"3000", "2997"}, 4},
		{"offset=5000", "", nil, 3000},
		{"", "sbx998", []string{"2997", "2995"}, 7},
		{"limit=1&orderAsc=true", "sbx998", []string{"2995"}, 7},
		{"offset=1", "sbx998", []string{"2995"}, 7},
		{"", "forgotten", nil, 3000},
	} {
		h.read = 0
		r := httptest.NewRequest("GET", "/events/sandboxes?"+c.query, nil)
		r.SetPathValue("sandboxID", c.id)
		w := httptest.NewRecorder()
		var shown []lifecycleEvent
		err := d.events(w, r)
		if err == nil {
			err = json.Unmarshal(w.Body.Bytes(), &shown)
		}
		var ids []string
		for _, e := range shown {
			ids = append(ids, e.ID)
		}
		if err != nil || !slices.Equal(ids, c.want) || h.read != c.read {
			t.Errorf("%s?%s: %v of %d that were read, %v", c.id, c.query, ids, h.read, err)
		}
	}
}
