package client

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/wire/guestpb"
)

// The bounds on the displayed results that a blocking RunCode keeps, and on the text that names a
// context: every event carries it.
const (
	maxResults     = 64 << 20
	maxResultCount = 10_000
	maxContextID   = 200
)

var _ bothy.CodeRunner = (*Client)(nil)

// RunCode runs a piece of code to its end. When ctx ends, the code is interrupted. Without code
// it only warms the context.
func (c *Client) RunCode(ctx context.Context, req bothy.CodeRequest) (*bothy.CodeResult, error) {
	res := &bothy.CodeResult{Results: []bothy.CodeOutput{}}
	outs := map[string]*headTail{streamStdout: newHeadTail(ctx), streamStderr: newHeadTail(ctx)}
	size, dropped := 0, false
	err := c.RunCodeStream(ctx, req, func(e bothy.CodeEvent) error {
		if o := outs[e.Stream]; o != nil {
			o.write([]byte(e.Data))
		}
		for _, r := range e.Results {
			n := bundleSize(r)
			if size += n; dropped || size > maxResults || len(res.Results) == maxResultCount || bothy.TakeMemory(ctx, int64(n)*outputFactor) != nil {
				dropped = true
			} else {
				res.Results = append(res.Results, r)
			}
		}
		if e.IsFinal {
			res.Error, res.ExecutionCount, res.DurationMS = e.Error, e.ExecutionCount, e.DurationMS
			res.TimedOut, res.OOMKilled, res.Truncated = e.TimedOut, e.OOMKilled, e.Truncated
			res.ContextID, res.Hint, res.ExitCode = e.ContextID, e.Hint, e.ExitCode
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	res.Stdout, res.Stderr = outs[streamStdout].text(), outs[streamStderr].text()
	res.Truncated = res.Truncated || dropped || outs[streamStdout].dropped+outs[streamStderr].dropped > 0
	return res, nil
}

// bundleSize is the memory that a result takes: an empty one is not free.
func bundleSize(o bothy.CodeOutput) int {
	n := (1 + len(o)) * partSize / outputFactor
	for mime, text := range o {
		n += len(mime) + len(text)
	}
	return n
}

// RunCodeStream calls fn for all output of the code as it comes, and for its end. When ctx ends
// or fn fails, the code is interrupted.
func (c *Client) RunCodeStream(ctx context.Context, req bothy.CodeRequest, fn func(bothy.CodeEvent) error) error {
	s, err := c.open(ctx, rpc{procedure: guestpb.CodeRunProcedure, max: maxDisplay}, &guestpb.RunRequest{
		Code: req.Code, Quiet: req.Quiet, Language: req.Language, ContextId: req.ContextID, Env: req.Env,
		TimeoutMs: uint64(math.Ceil(max(req.TimeoutSeconds, 0) * 1000)),
	})
	if err != nil {
		return err
	}
	defer s.close() // tells the guest, which then interrupts the code
	context, ended, skipped := "", false, false
	for {
		var res guestpb.RunResponse // maps would otherwise be merged into an old one
		err := s.next(&res)
		if errors.Is(err, errNoRoom) { // a display, say: the code continues
			skipped = true
			continue
		}
		if err == io.EOF && ended {
			return nil
		}
		if err == io.EOF {
			return unreachable(io.ErrUnexpectedEOF)
		}
		if err != nil {
			return err
		}
		event := bothy.CodeEvent{ContextID: context}
		switch e := res.Event.(type) {
		case *guestpb.RunResponse_Text_:
			event.Stream, event.Data = e.Text.GetStream(), e.Text.GetText()
		case *guestpb.RunResponse_Display_:
			event.Results, event.IsValue = []bothy.CodeOutput{e.Display.GetData()}, e.Display.GetValue()
		case *guestpb.RunResponse_Ended_:
			ended = true
			finalEvent(&event, e.Ended)
			event.Truncated = event.Truncated || skipped
		case *guestpb.RunResponse_Started_:
			if context = e.Started.GetContextId(); len(context) > maxContextID {
				return unreachable(errTooLong)
			}
			continue
		default:
			continue
		}
		if err := fn(event); err != nil {
			return err
		}
	}
}

func finalEvent(event *bothy.CodeEvent, e *guestpb.RunResponse_Ended) {
	event.IsFinal = true
	event.ExecutionCount, event.DurationMS = int(e.GetExecutionCount()), e.GetDurationMs()
	event.TimedOut, event.OOMKilled, event.Truncated = e.GetTimedOut(), e.GetOomKilled(), e.GetTruncated()
	event.Hint = clip(e.GetHint())
	if e.ExitCode != nil {
		code := int(*e.ExitCode)
		event.ExitCode = &code
	}
	if err := e.GetError(); err != nil {
		event.Error = &bothy.CodeError{Name: err.Name, Value: err.Value, Traceback: err.Traceback}
	}
}

// CreateContext makes a context.
func (c *Client) CreateContext(ctx context.Context, req bothy.CodeContextCreate) (*bothy.CodeContext, error) {
	var res guestpb.CreateContextResponse
	err := c.unary(ctx, rpc{procedure: guestpb.CodeCreateContextProcedure},
		&guestpb.CreateContextRequest{Language: req.Language, Cwd: req.Cwd}, &res)
	if err != nil {
		return nil, err
	}
	cc := codeContext(res.Context)
	return &cc, nil
}

// Contexts lists the contexts, oldest first.
func (c *Client) Contexts(ctx context.Context) ([]bothy.CodeContext, error) {
	var res guestpb.ListContextsResponse
	err := c.unary(ctx, rpc{procedure: guestpb.CodeListContextsProcedure, retry: true}, &guestpb.ListContextsRequest{}, &res)
	if err != nil {
		return nil, err
	}
	list := make([]bothy.CodeContext, len(res.Contexts))
	for i, cc := range res.Contexts {
		list[i] = codeContext(cc)
	}
	return list, nil
}

func codeContext(c *guestpb.ContextInfo) bothy.CodeContext {
	return bothy.CodeContext{
		ID: c.GetId(), Language: c.GetLanguage(), Cwd: c.GetCwd(), CreatedAt: time.UnixMilli(c.GetCreatedUnixMs()).UTC(),
	}
}

// DeleteContext ends a context.
func (c *Client) DeleteContext(ctx context.Context, id string) error {
	return c.unary(ctx, rpc{procedure: guestpb.CodeDeleteContextProcedure},
		&guestpb.DeleteContextRequest{ContextId: id}, &guestpb.DeleteContextResponse{})
}

// InterruptContext stops the code that runs in a context, or is about to, like Ctrl-C.
func (c *Client) InterruptContext(ctx context.Context, id string) error {
	return c.unary(ctx, rpc{procedure: guestpb.CodeInterruptContextProcedure},
		&guestpb.InterruptContextRequest{ContextId: id}, &guestpb.InterruptContextResponse{})
}

// RestartContext resets a context.
func (c *Client) RestartContext(ctx context.Context, id string) error {
	return c.unary(ctx, rpc{procedure: guestpb.CodeRestartContextProcedure},
		&guestpb.RestartContextRequest{ContextId: id}, &guestpb.RestartContextResponse{})
}
