package e2b

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/bothy-dev/bothy"
)

// lifecycleTypes are E2B's event types, and their equivalents here.
var lifecycleTypes = []struct{ e2b, ours string }{
	{"sandbox.lifecycle.created", bothy.EventSandboxCreated},
	{"sandbox.lifecycle.updated", bothy.EventSandboxUpdated},
	{"sandbox.lifecycle.paused", bothy.EventSandboxPaused},
	{"sandbox.lifecycle.resumed", bothy.EventSandboxResumed},
	{"sandbox.lifecycle.checkpointed", bothy.EventSnapshotCreated},
	{"sandbox.lifecycle.killed", bothy.EventSandboxEnded},
}

// lifecycleType is E2B's name for a type of events, or "".
func lifecycleType(ours string) string {
	for _, t := range lifecycleTypes {
		if t.ours == ours {
			return t.e2b
		}
	}
	return ""
}

func ourType(e2b string) string {
	for _, t := range lifecycleTypes {
		if t.e2b == e2b {
			return t.ours
		}
	}
	return ""
}

// lifecycleEvent is how E2B's API shows an event.
type lifecycleEvent struct {
	Version     string         `json:"version"`
	ID          string         `json:"id"`
	Type        string         `json:"type"`
	EventData   map[string]any `json:"eventData"`
	BuildID     string         `json:"sandboxBuildId"`
	ExecutionID string         `json:"sandboxExecutionId"`
	SandboxID   string         `json:"sandboxId"`
	TeamID      string         `json:"sandboxTeamId"`
	TemplateID  string         `json:"sandboxTemplateId"`
	Timestamp   time.Time      `json:"timestamp"`
}

// describe converts an event, with what is known about its sandbox, which may
// be nil.
func describe(e bothy.Event, sb *bothy.Sandbox) lifecycleEvent {
	l := lifecycleEvent{
		Version: "v2", ID: strconv.FormatInt(e.ID, 10), Type: lifecycleType(e.Type), SandboxID: e.SandboxID,
		TeamID: e.ProjectID, Timestamp: e.Time, EventData: map[string]any{"sandbox_metadata": map[string]string{}},
	}
	if sb == nil {
		return l
	}
	l.TemplateID, l.BuildID, l.ExecutionID = sb.Template, sb.Template, sb.ID
	if sb.Metadata != nil {
		l.EventData["sandbox_metadata"] = sb.Metadata
	}
	if started := sb.StartedAt; started != nil && (e.Type == bothy.EventSandboxEnded || e.Type == bothy.EventSandboxPaused) {
		l.EventData["execution"] = map[string]any{
			"started_at": started, "vcpu_count": sb.CPU, "memory_mb": sb.MemoryMB,
			"execution_time": max(0, e.Time.Sub(*started).Milliseconds()),
		}
	}
	return l
}

// getter finds a sandbox in any state; see bothy.SandboxService.
type getter interface {
	Get(ctx context.Context, id string) (*bothy.Sandbox, error)
}

// known returns the sandbox of an event, or nil if it was forgotten or there is none.
func known(ctx context.Context, s getter, e bothy.Event) *bothy.Sandbox {
	if e.SandboxID == "" {
		return nil
	}
	sb, err := s.Get(ctx, e.SandboxID)
	if err != nil {
		return nil
	}
	return sb
}

func (d *Door) eventRoutes() []Route {
	return []Route{
		route("GET /events/sandboxes", "list-events", bothy.ScopeSandboxesRead, d.events),
		route("GET /events/sandboxes/{sandboxID}", "sandbox-events", bothy.ScopeSandboxesRead, d.events),
	}
}

// events lists events, newest first unless asked otherwise.
func (d *Door) events(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	limit, err := number(q, "limit", 10, 1, 100)
	if err != nil {
		return err
	}
	offset, err := number(q, "offset", 0, 0, 1<<30)
	if err != nil {
		return err
	}
	var types []string
	for _, t := range split(q["types"]) {
		ours := ourType(t)
		if ours == "" {
			return invalid("types: there are no events of the type %q", t)
		}
		types = append(types, ours)
	}
	id := ""
	if r.PathValue("sandboxID") != "" {
		id = bareID(r.PathValue("sandboxID"))
	}
	wanted := func(e bothy.Event) bool {
		return lifecycleType(e.Type) != "" && (id == "" || e.SandboxID == id) && (len(types) == 0 || slices.Contains(types, e.Type))
	}
	list, err := d.pageOfEvents(r.Context(), id, wanted, q.Get("orderAsc") == "true", offset, limit)
	if err != nil {
		return err
	}
	shown := []lifecycleEvent{}
	for _, e := range list {
		shown = append(shown, describe(e, known(r.Context(), d.Sandboxes, e)))
	}
	return reply(w, http.StatusOK, shown)
}

// pageOfEvents reads no more of a project's events than necessary: from the requested end to the
// page's last, or, for one sandbox, from the latest back to its creation.
func (d *Door) pageOfEvents(ctx context.Context, id string, wanted func(bothy.Event) bool, oldestFirst bool, offset, limit int) ([]bothy.Event, error) {
	var all []bothy.Event
	var created time.Time
	if id != "" {
		if sb, err := d.Sandboxes.Get(ctx, id); err == nil {
			created = sb.CreatedAt
		}
	}
	collect := func(e bothy.Event) error {
		if e.Time.Before(created.Add(-eventSlack)) {
			return errEnough
		}
		if wanted(e) {
			all = append(all, e)
		}
		if id == "" && len(all) == offset+limit {
			return errEnough
		}
		return nil
	}
	var err error
	if oldestFirst && id == "" {
		err = d.Events.Events(ctx, bothy.EventFilter{}, collect)
	} else {
		err = d.Events.EventsBackwards(ctx, collect)
	}
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	if oldestFirst && id != "" {
		slices.Reverse(all)
	}
	all = all[min(offset, len(all)):]
	return all[:min(limit, len(all))], nil
}

// eventSlack is by how much the times of consecutively stored events may be out of order.
const eventSlack = time.Minute

// errEnough ends the reading of events.
var errEnough = errors.New("no more events are wanted")
