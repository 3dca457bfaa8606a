package rest

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

type eventsInput struct {
	Accept      string `header:"Accept" hidden:"true"`
	LastEventID string `header:"Last-Event-ID" hidden:"true"`
	Since       int64  `query:"since" minimum:"0" doc:"Only events with an id above this one."`
	SandboxID   string `query:"sandbox_id" doc:"Only events of this sandbox."`
	New         bool   `query:"new" doc:"Only what happens from now on. As JSON, no items, and the next_cursor after which that is."`
	Limit       int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"How many to return at most, as JSON."`
}

// errEnough ends a list that is long enough.
var errEnough = errors.New("enough")

func (s *handlers) registerEvents() {
	svc := s.services.Events
	if svc == nil {
		return
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "list-events", Method: http.MethodGet, Path: "/v1/events", Tag: "Events",
		Summary: "List or follow events", Scope: bothy.ScopeSandboxesRead,
		Text: "As JSON, the events after `since`, oldest first; `next_cursor` is the `since` of the next page. " +
			"With `Accept: text/event-stream`, these and then new ones as they happen; Last-Event-ID is honoured.",
		Returns: []middleware.Form{middleware.As[bothy.Page[bothy.Event]]("application/json"), middleware.As[bothy.Event](middleware.EventsType)},
	}, func(ctx context.Context, in *eventsInput) (*openapi.Response, error) {
		if middleware.WantsEvents(in.Accept) {
			return s.followEvents(in), nil
		}
		if in.New {
			last, err := svc.LastEvent(ctx)
			if err != nil {
				return nil, err
			}
			p := bothy.Page[bothy.Event]{Items: []bothy.Event{}, NextCursor: strconv.FormatInt(last, 10)}
			return openapi.Respond(func(w http.ResponseWriter, _ *http.Request) { openapi.WriteJSON(w, http.StatusOK, p) }), nil
		}
		p := bothy.Page[bothy.Event]{Items: []bothy.Event{}}
		err := svc.Events(ctx, bothy.EventFilter{Since: in.Since, SandboxID: in.SandboxID}, func(e bothy.Event) error {
			if len(p.Items) == in.Limit {
				p.NextCursor = strconv.FormatInt(p.Items[in.Limit-1].ID, 10)
				return errEnough
			}
			p.Items = append(p.Items, e)
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return nil, err
		}
		return openapi.Respond(func(w http.ResponseWriter, _ *http.Request) { openapi.WriteJSON(w, http.StatusOK, p) }), nil
	})
}

func (s *handlers) followEvents(in *eventsInput) *openapi.Response {
	if last, err := strconv.ParseInt(in.LastEventID, 10, 64); err == nil && last > in.Since {
		in.Since = last
	}
	return openapi.Respond(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := s.Following(r.Context())
		defer cancel()
		s.streamEvents(w, r, ctx, func(ctx context.Context, send func(string, any) error) error {
			f := bothy.EventFilter{Since: in.Since, SandboxID: in.SandboxID, Follow: true}
			if in.New && f.Since == 0 {
				last, err := s.services.Events.LastEvent(ctx)
				if err != nil {
					return err
				}
				f.Since = last
			}
			return s.services.Events.Events(ctx, f, func(e bothy.Event) error {
				return send(strconv.FormatInt(e.ID, 10), e)
			})
		})
	})
}
