package rest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

// ProcessRef names a process. It is exported because huma ignores embedded structs that are not.
type ProcessRef struct {
	ID  string `path:"id" doc:"The sandbox's id."`
	PID int    `path:"pid" minimum:"1" doc:"The process's id inside the sandbox."`
}

type outputInput struct {
	ProcessRef
	From int64 `query:"from" minimum:"0" doc:"The byte offset to begin at; what is held may begin later."`
}

// StdinRequest is input for a process.
type StdinRequest struct {
	Data     string `json:"data,omitempty"`
	Encoding string `json:"encoding,omitempty"`
	EOF      bool   `json:"eof,omitempty"`
}

type stdinInput struct {
	ProcessRef
	Body StdinRequest
}

// SignalRequest names a signal.
type SignalRequest struct {
	Signal signal `json:"signal"`
}

type signalInput struct {
	ProcessRef
	Body SignalRequest
}

// signal is the number of a signal; in JSON also its name.
type signal int

var signals = map[string]signal{
	"HUP": 1, "INT": 2, "QUIT": 3, "ABRT": 6, "KILL": 9, "USR1": 10, "USR2": 12,
	"PIPE": 13, "ALRM": 14, "TERM": 15, "CONT": 18, "STOP": 19, "TSTP": 20, "WINCH": 28,
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *signal) UnmarshalJSON(b []byte) error {
	var number int
	if json.Unmarshal(b, &number) == nil && number >= 1 && number <= 64 {
		*s = signal(number)
		return nil
	}
	var name string
	if json.Unmarshal(b, &name) == nil {
		if n, ok := signals[strings.TrimPrefix(name, "SIG")]; ok {
			*s = n
			return nil
		}
	}
	return fmt.Errorf("signal %s is neither a number from 1 to 64 nor one of %s", b, strings.Join(signalNames(), ", "))
}

func signalNames() []string {
	var names []string
	for n := range signals {
		names = append(names, "SIG"+n)
	}
	slices.Sort(names)
	return names
}

// Schema implements huma.SchemaProvider.
func (signal) Schema(huma.Registry) *huma.Schema {
	names := []any{}
	for _, n := range signalNames() {
		names = append(names, n)
	}
	return openapi.LooseOneOf("The signal's name or number.",
		map[string]any{"type": "string", "enum": names},
		map[string]any{"type": "integer", "minimum": 1, "maximum": 64})
}

type processesInput struct {
	ID  string `path:"id" doc:"The sandbox's id."`
	All bool   `query:"all" doc:"Also those that were not started through the API."`
}

type waitInput struct {
	ID   string `path:"id" doc:"The sandbox's id."`
	Body bothy.WaitRequest
}

func (s *handlers) registerProcesses() {
	svc := s.services.Exec
	if svc == nil {
		return
	}
	const base = "/v1/sandboxes/{id}/processes"
	openapi.Add(s.registry, middleware.Operation{
		ID: "list-processes", Method: http.MethodGet, Path: base, Tag: "Commands",
		Summary: "List processes", Scope: bothy.ScopeSandboxesRead,
		Text: "Those that were started through the API and are running, or have ended with output still buffered. With `all`, also every other running process, " +
			"and what each running one uses.",
	}, func(ctx context.Context, in *processesInput) (*openapi.Answer[openapi.Items[bothy.ProcessInfo]], error) {
		list := svc.Processes
		if in.All {
			list = svc.AllProcesses
		}
		return many(list(ctx, in.ID))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "follow-output", Method: http.MethodGet, Path: base + "/{pid}/output", Tag: "Commands",
		Summary: "Follow a process's output", Scope: bothy.ScopeSandboxesRead,
		Text: "Events like those of exec: the buffered output from an offset on, then new output, and finally the end of the process. " +
			"To rejoin after a broken connection, request the offset after the last byte received. Disconnecting does not affect the process.",
		Returns: []middleware.Form{middleware.As[ExecEvent](middleware.EventsType)},
	}, func(_ context.Context, in *outputInput) (*openapi.Response, error) {
		return openapi.Respond(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := s.Following(r.Context())
			defer cancel()
			s.streamEvents(w, r, ctx, func(ctx context.Context, send func(string, any) error) error {
				return svc.Output(ctx, in.ID, in.PID, in.From, func(e bothy.ExecEvent) error { return send("", execEvent(e)) })
			})
		}), nil
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "wait", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/wait", Tag: "Commands",
		Summary: "Wait until something is ready", Scope: bothy.ScopeSandboxesWrite,
		Text: "Answers when a server listens on a port, when a URL is answered, when a line is written, or when a process ends. " +
			"The sandbox itself looks, so nothing need be asked again and again. If the time is up first, the answer has `timed_out`; " +
			"if the process in `pid` ends first, the answer is `conflict` and names its exit code.",
	}, func(ctx context.Context, in *waitInput) (*openapi.Answer[*bothy.WaitResult], error) {
		return one(svc.Wait(ctx, in.ID, in.Body))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "write-stdin", Once: true, Method: http.MethodPost, Path: base + "/{pid}/stdin", Tag: "Commands",
		Summary: "Write to a process's input", Scope: bothy.ScopeSandboxesWrite,
	}, func(ctx context.Context, in *stdinInput) (*openapi.Empty, error) {
		data, err := decodeContent(in.Body.Data, in.Body.Encoding)
		if err != nil {
			return nil, err
		}
		return nil, svc.Stdin(ctx, in.ID, in.PID, data, in.Body.EOF)
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "signal-process", Once: true, Method: http.MethodPost, Path: base + "/{pid}/signal", Tag: "Commands",
		Summary: "Send a signal to a process", Scope: bothy.ScopeSandboxesWrite,
		Text: "For a process started through the API, the whole process group gets it; for any other, only the process.",
	}, func(ctx context.Context, in *signalInput) (*openapi.Empty, error) {
		return nil, svc.Signal(ctx, in.ID, in.PID, int(in.Body.Signal))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "kill-process", Method: http.MethodDelete, Path: base + "/{pid}", Tag: "Commands",
		Summary: "Kill a process", Scope: bothy.ScopeSandboxesWrite,
		Text: "Kills the process and everything it started. If it was not started through the API, only the process itself is killed.",
	}, func(ctx context.Context, in *ProcessRef) (*openapi.Empty, error) {
		return nil, svc.Signal(ctx, in.ID, in.PID, int(signals["KILL"]))
	})
}

// decodeContent decodes text that is plain or in base64.
func decodeContent(text, encoding string) ([]byte, error) {
	if encoding != "base64" {
		return []byte(text), nil
	}
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the content is not base64: %v", err).
			WithHint("Use the standard alphabet with padding, or the encoding utf-8.")
	}
	return b, nil
}
