package pretend

import (
	"context"
	"net/netip"
	"time"

	"github.com/bothy-dev/bothy"
)

// History is the bothy.EventService and bothy.NetworkService of a world. Both
// tell a fixed story.
type History struct{ *World }

// Events returns the events of a sandbox.
func (w History) Events(ctx context.Context, f bothy.EventFilter, fn func(bothy.Event) error) error {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	story := []bothy.Event{
		{ID: 1, Time: at, Type: bothy.EventSandboxCreated, SandboxID: "sbxone", Data: map[string]string{"template": "python-3.12"}},
		{ID: 2, Time: at.Add(time.Minute), Type: bothy.EventSandboxEnded, SandboxID: "sbxone", Data: map[string]string{"reason": "timeout"}},
	}
	for _, e := range story {
		if e.ID <= f.Since || (f.SandboxID != "" && e.SandboxID != f.SandboxID) {
			continue
		}
		if err := fn(e); err != nil {
			return err
		}
	}
	return wait(ctx, f.Follow)
}

// LastEvent is the last of the story.
func (w History) LastEvent(context.Context) (int64, error) { return 2, nil }

// NetworkLog returns three connections.
func (w History) NetworkLog(ctx context.Context, id string, _ time.Time, follow bool, fn func(bothy.NetworkDecision) error) error {
	if _, err := w.find(id); err != nil {
		return err
	}
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	story := []bothy.NetworkDecision{
		{Time: at, Protocol: "tls", Name: "api.example.com", Port: 443, Allowed: true, Rule: "domain:api.example.com"},
		{Time: at, Protocol: "tls", Name: "api.example.com", Port: 443, Allowed: true, Closed: true, BytesOut: 900, BytesIn: 3 << 20},
		{Time: at, Protocol: "tcp", Address: netip.MustParseAddr("192.0.2.1").String(), Port: 25, Reason: "the address is not in the list", Repeated: 3},
		{Time: at, Protocol: "dns", Name: "evil\x1b[2J.example.com", Reason: "the name is not in the list"},
	}
	for _, d := range story {
		if err := fn(d); err != nil {
			return err
		}
	}
	return wait(ctx, follow)
}

func wait(ctx context.Context, follow bool) error {
	if !follow {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}
