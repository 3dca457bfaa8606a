package rest

import (
	"context"
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

// ExecEvent is the wire form of an event of a command: output has a stream, data and an offset,
// and the end has is_final and an exit code.
type ExecEvent struct {
	Stream     string `json:"stream,omitempty"`
	Data       string `json:"data,omitempty"`
	Encoding   string `json:"encoding,omitempty"`
	Offset     *int64 `json:"offset,omitempty"`
	PID        int    `json:"pid,omitempty"`
	IsFinal    bool   `json:"is_final,omitempty"`
	ExitCode   *int   `json:"exit_code,omitempty"`
	DurationMS *int64 `json:"duration_ms,omitempty"`
	TimedOut   *bool  `json:"timed_out,omitempty"`
	OOMKilled  *bool  `json:"oom_killed,omitempty"`
	Truncated  *bool  `json:"truncated,omitempty"`
	Hint       string `json:"hint,omitempty"`
}

func execEvent(e bothy.ExecEvent) ExecEvent {
	if e.IsFinal {
		return ExecEvent{
			IsFinal: true, ExitCode: &e.ExitCode, DurationMS: &e.DurationMS, TimedOut: &e.TimedOut,
			OOMKilled: &e.OOMKilled, Truncated: &e.Truncated, PID: e.PID, Hint: e.Hint,
		}
	}
	return ExecEvent{Stream: e.Stream, Data: e.Data, Encoding: e.Encoding, Offset: &e.Offset, PID: e.PID}
}

type execInput struct {
	ID     string `path:"id" doc:"The sandbox's id."`
	Accept string `header:"Accept" hidden:"true"`
	Key    string `header:"Idempotency-Key" hidden:"true"`
	Body   bothy.ExecRequest
}

func (s *handlers) registerExec() {
	svc := s.services.Exec
	if svc == nil {
		return
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "exec", Once: true, Method: http.MethodPost, Path: "/v1/sandboxes/{id}/exec", Tag: "Commands",
		Summary: "Run a command", Scope: bothy.ScopeSandboxesWrite,
		Text: "Answers when the command has ended, with its exit code and output; with `background`, as soon as it has started. " +
			"With `Accept: text/event-stream` the output comes as events while the command runs, and the last event has `is_final`. " +
			"When the connection ends before the command does, the command is killed with everything it started, unless it is in the background or has `keep_running`. " +
			"Such a killed command is not run again under its Idempotency-Key: the repetition is answered with `command_cancelled`. " +
			"With both a key and `keep_running`, the repetition gets the command's result.",
		Returns: []middleware.Form{middleware.As[bothy.ExecResult]("application/json"), middleware.As[ExecEvent](middleware.EventsType)},
	}, func(ctx context.Context, in *execInput) (*openapi.Response, error) {
		stdin, err := decodeContent(in.Body.Stdin, in.Body.StdinEncoding)
		if err != nil {
			return nil, err
		}
		in.Body.Stdin, in.Body.StdinEncoding = string(stdin), ""
		if middleware.WantsEvents(in.Accept) {
			return s.execStream(in)
		}
		if in.Body.KeepRunning && in.Key != "" {
			var cancel context.CancelFunc
			ctx, cancel = s.Outliving(ctx)
			defer cancel()
		}
		result, err := svc.Exec(ctx, in.ID, in.Body)
		if err != nil {
			return nil, err
		}
		return openapi.Respond(func(w http.ResponseWriter, _ *http.Request) { openapi.WriteJSON(w, http.StatusOK, result) }), nil
	})
}

func (s *handlers) execStream(in *execInput) (*openapi.Response, error) {
	if in.Body.Background {
		return nil, bothy.Errorf(bothy.CodeInvalid, "background: a background command is not streamed while it starts").
			WithHint("Start it with \"Accept: application/json\", then follow GET /v1/sandboxes/{id}/processes/{pid}/output.")
	}
	return openapi.Respond(func(w http.ResponseWriter, r *http.Request) {
		s.streamEvents(w, r, r.Context(), func(ctx context.Context, send func(string, any) error) error {
			return s.services.Exec.ExecStream(ctx, in.ID, in.Body, func(e bothy.ExecEvent) error { return send("", execEvent(e)) })
		})
	}), nil
}
