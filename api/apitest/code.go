package apitest

import (
	"context"
	"fmt"
	"slices"

	"github.com/bothy-dev/bothy"
)

// RunCode implements bothy.CodeService. The code "raise" raises, "wait" waits to be cancelled,
// and all other code is displayed.
func (w *World) RunCode(ctx context.Context, id string, req bothy.CodeRequest) (*bothy.CodeResult, error) {
	if err := w.beginCode(ctx, id, req); err != nil {
		return nil, err
	}
	r := &bothy.CodeResult{ExecutionCount: 1, DurationMS: 5, ContextID: req.ContextID}
	switch req.Code {
	case "raise":
		r.Error = &bothy.CodeError{Name: "ValueError", Value: "v", Traceback: "t"}
	case "wait":
		<-ctx.Done()
		w.Canceled <- id
		return nil, ctx.Err()
	default:
		r.Stdout = req.Language + "\n"
		r.Results = []bothy.CodeOutput{{"text/plain": req.Code}}
	}
	return r, nil
}

func (w *World) beginCode(ctx context.Context, id string, req bothy.CodeRequest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.get(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return err
	}
	w.Ran = req
	return b.knows(req.ContextID)
}

func (b *sandbox) knows(contextID string) error {
	known := contextID == "" || slices.ContainsFunc(b.contexts, func(c bothy.CodeContext) bool { return c.ID == contextID })
	if known {
		return nil
	}
	return bothy.Errorf(bothy.CodeContextNotFound, "there is no context %q", contextID).WithHint("Make one.")
}

// RunCodeStream implements bothy.CodeService.
func (w *World) RunCodeStream(ctx context.Context, id string, req bothy.CodeRequest, fn func(bothy.CodeEvent) error) error {
	if req.Code == "wait" {
		_ = fn(bothy.CodeEvent{Stream: "stdout", Data: "ready\n"})
	}
	r, err := w.RunCode(ctx, id, req)
	if err != nil {
		return err
	}
	for _, e := range []bothy.CodeEvent{{Stream: "stdout", Data: r.Stdout}, {Results: r.Results}} {
		if e.Data == "" && e.Results == nil {
			continue
		}
		if err := fn(e); err != nil {
			return err
		}
	}
	return fn(bothy.CodeEvent{IsFinal: true, Error: r.Error, ExecutionCount: r.ExecutionCount, DurationMS: r.DurationMS})
}

// CreateContext implements bothy.CodeService.
func (w *World) CreateContext(ctx context.Context, id string, req bothy.CodeContextCreate) (*bothy.CodeContext, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.get(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	c := bothy.CodeContext{ID: w.id("ctx"), Language: req.Language, Cwd: req.Cwd, CreatedAt: Epoch}
	b.contexts = append(b.contexts, c)
	return &c, nil
}

// Contexts implements bothy.CodeService.
func (w *World) Contexts(ctx context.Context, id string) ([]bothy.CodeContext, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.get(ctx, id, bothy.ScopeSandboxesRead)
	if err != nil {
		return nil, err
	}
	return slices.Clone(b.contexts), nil
}

// change does something to a context, and records it in Done.
func (w *World) change(ctx context.Context, id, contextID, what string, do func(*sandbox)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, err := w.get(ctx, id, bothy.ScopeSandboxesWrite)
	if err != nil {
		return err
	}
	if err := b.knows(contextID); err != nil {
		return err
	}
	w.Done = append(w.Done, fmt.Sprintf("%s %s", what, contextID))
	do(b)
	return nil
}

// DeleteContext implements bothy.CodeService.
func (w *World) DeleteContext(ctx context.Context, id, contextID string) error {
	return w.change(ctx, id, contextID, "delete", func(b *sandbox) {
		b.contexts = slices.DeleteFunc(b.contexts, func(c bothy.CodeContext) bool { return c.ID == contextID })
	})
}

// InterruptContext implements bothy.CodeService.
func (w *World) InterruptContext(ctx context.Context, id, contextID string) error {
	return w.change(ctx, id, contextID, "interrupt", func(*sandbox) {})
}

// RestartContext implements bothy.CodeService.
func (w *World) RestartContext(ctx context.Context, id, contextID string) error {
	return w.change(ctx, id, contextID, "restart", func(*sandbox) {})
}
