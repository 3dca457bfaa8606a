package agent

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/bothy-dev/bothy/guest/code"
	"github.com/bothy-dev/bothy/guest/command"
	"github.com/bothy-dev/bothy/guest/wire/guestpb"
)

// codeHost is the agent's side of code contexts.
type codeHost struct{ a *Agent }

func (h codeHost) Start(s command.Spec) (*command.Process, error) { return h.a.commands.Start(s) }

func (h codeHost) Identity() (code.Identity, error) {
	id := h.a.identity.get()
	u, err := h.a.accounts.Lookup(id.user)
	if err != nil {
		return code.Identity{}, err
	}
	env, err := h.a.environment(u, nil, false)
	return code.Identity{User: u, Cwd: id.cwd, Env: env, Own: id.env, Generation: id.generation}, err
}

type codeService struct{ a *Agent }

func (s *codeService) Run(ctx context.Context, req *guestpb.RunRequest, stream *connect.ServerStream[guestpb.RunResponse]) error {
	c, err := s.a.code.Find(req.ContextId, req.Language)
	if err != nil {
		return err
	}
	err = stream.Send(&guestpb.RunResponse{Event: &guestpb.RunResponse_Started_{Started: &guestpb.RunResponse_Started{ContextId: c.ID}}})
	if err != nil {
		return err
	}
	r := code.Request{Code: req.Code, Env: req.Env, Quiet: req.Quiet, Timeout: time.Duration(min(req.TimeoutMs, 1<<40)) * time.Millisecond}
	res, err := c.Run(ctx, r, func(o code.Output) error { return stream.Send(runOutput(o)) })
	if err != nil {
		return err
	}
	return stream.Send(runEnd(res))
}

func runOutput(o code.Output) *guestpb.RunResponse {
	if o.Data != nil {
		return &guestpb.RunResponse{Event: &guestpb.RunResponse_Display_{Display: &guestpb.RunResponse_Display{Data: o.Data, Value: o.Value}}}
	}
	return &guestpb.RunResponse{Event: &guestpb.RunResponse_Text_{Text: &guestpb.RunResponse_Text{Stream: o.Stream, Text: o.Text}}}
}

func runEnd(res code.Result) *guestpb.RunResponse {
	e := &guestpb.RunResponse_Ended{
		ExecutionCount: int32(res.ExecutionCount), DurationMs: res.Duration.Milliseconds(),
		TimedOut: res.TimedOut, OomKilled: res.OOMKilled, Truncated: res.Truncated, Hint: res.Hint,
	}
	if res.ExitCode != nil {
		code := int32(*res.ExitCode)
		e.ExitCode = &code
	}
	if res.Error != nil {
		e.Error = &guestpb.CodeError{Name: res.Error.Name, Value: res.Error.Value, Traceback: res.Error.Traceback}
	}
	return &guestpb.RunResponse{Event: &guestpb.RunResponse_Ended_{Ended: e}}
}

func contextInfo(c *code.Context) *guestpb.ContextInfo {
	return &guestpb.ContextInfo{Id: c.ID, Language: c.Language, Cwd: c.Cwd, CreatedUnixMs: c.CreatedAt.UnixMilli()}
}

func (s *codeService) CreateContext(ctx context.Context, req *guestpb.CreateContextRequest) (*guestpb.CreateContextResponse, error) {
	c, err := s.a.code.Create(req.Language, req.Cwd)
	if err != nil {
		return nil, err
	}
	return &guestpb.CreateContextResponse{Context: contextInfo(c)}, nil
}

func (s *codeService) ListContexts(ctx context.Context, _ *guestpb.ListContextsRequest) (*guestpb.ListContextsResponse, error) {
	res := &guestpb.ListContextsResponse{}
	for _, c := range s.a.code.List() {
		res.Contexts = append(res.Contexts, contextInfo(c))
	}
	return res, nil
}

func (s *codeService) DeleteContext(ctx context.Context, req *guestpb.DeleteContextRequest) (*guestpb.DeleteContextResponse, error) {
	return &guestpb.DeleteContextResponse{}, s.a.code.Delete(req.ContextId)
}

func (s *codeService) InterruptContext(ctx context.Context, req *guestpb.InterruptContextRequest) (*guestpb.InterruptContextResponse, error) {
	c, err := s.a.code.Find(req.ContextId, "")
	if err == nil {
		err = c.Interrupt()
	}
	return &guestpb.InterruptContextResponse{}, err
}

func (s *codeService) RestartContext(ctx context.Context, req *guestpb.RestartContextRequest) (*guestpb.RestartContextResponse, error) {
	c, err := s.a.code.Find(req.ContextId, "")
	if err == nil {
		c.Restart()
	}
	return &guestpb.RestartContextResponse{}, err
}
