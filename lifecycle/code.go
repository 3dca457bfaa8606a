package lifecycle

import (
	"context"

	"github.com/bothy-dev/bothy"
)

// The methods of bothy.CodeService forward to the guest.

func (s *Service) RunCode(ctx context.Context, id string, req bothy.CodeRequest) (*bothy.CodeResult, error) {
	return runner(ctx, s, id, bothy.ScopeSandboxesWrite, s.noteCode, func(c bothy.CodeRunner) (res *bothy.CodeResult, err error) {
		// It may first wait for other code in its context.
		err = s.inTime(ctx, id, req.TimeoutSeconds, false, func(ctx context.Context) (err error) {
			res, err = c.RunCode(ctx, req)
			return err
		})
		return res, err
	})
}

func (s *Service) RunCodeStream(ctx context.Context, id string, req bothy.CodeRequest, fn func(bothy.CodeEvent) error) error {
	_, err := runner(ctx, s, id, bothy.ScopeSandboxesWrite, s.noteCode, func(c bothy.CodeRunner) (struct{}, error) {
		return struct{}{}, s.inTime(ctx, id, req.TimeoutSeconds, false, func(ctx context.Context) error { return c.RunCodeStream(ctx, req, answering(ctx, s, id, fn)) })
	})
	return err
}

func (s *Service) CreateContext(ctx context.Context, id string, req bothy.CodeContextCreate) (*bothy.CodeContext, error) {
	return runner(ctx, s, id, bothy.ScopeSandboxesWrite, s.noteRan, func(c bothy.CodeRunner) (*bothy.CodeContext, error) {
		return c.CreateContext(ctx, req)
	})
}

func (s *Service) Contexts(ctx context.Context, id string) ([]bothy.CodeContext, error) {
	return runner(ctx, s, id, bothy.ScopeSandboxesRead, nil, func(c bothy.CodeRunner) ([]bothy.CodeContext, error) { return c.Contexts(ctx) })
}

func (s *Service) DeleteContext(ctx context.Context, id, contextID string) error {
	return s.onContext(ctx, id, nil, func(c bothy.CodeRunner) error { return c.DeleteContext(ctx, contextID) })
}

func (s *Service) InterruptContext(ctx context.Context, id, contextID string) error {
	return s.onContext(ctx, id, nil, func(c bothy.CodeRunner) error { return c.InterruptContext(ctx, contextID) })
}

func (s *Service) RestartContext(ctx context.Context, id, contextID string) error {
	return s.onContext(ctx, id, s.noteRan, func(c bothy.CodeRunner) error { return c.RestartContext(ctx, contextID) })
}

// noteCode tells the pool that a sandbox of this template runs code.
func (s *Service) noteCode(id string) {
	if l := s.instance(id); l != nil {
		s.warm.RanCode(l.Digest)
	}
	s.noteRan(id)
}

// noteRan records that a sandbox's interpreters have been used.
func (s *Service) noteRan(id string) {
	if l := s.instance(id); l != nil {
		l.RanCode()
	}
}

func (s *Service) onContext(ctx context.Context, id string, note func(string), f func(bothy.CodeRunner) error) error {
	_, err := runner(ctx, s, id, bothy.ScopeSandboxesWrite, note, func(c bothy.CodeRunner) (struct{}, error) { return struct{}{}, f(c) })
	return err
}

// runner calls f with the sandbox's code runner. It calls note first, if not nil, once access
// is checked.
func runner[T any](ctx context.Context, s *Service, id string, scope bothy.Scope, note func(string), f func(bothy.CodeRunner) (T, error)) (T, error) {
	call := func(g bothy.Guest) (v T, err error) {
		if note != nil {
			note(id)
		}
		c, ok := g.(bothy.CodeRunner)
		if !ok {
			return v, bothy.Errorf(bothy.CodeUnsupported, "the guest of sandbox %s cannot run code", id).WithHint("Use exec.")
		}
		return f(c)
	}
	if scope == bothy.ScopeSandboxesWrite {
		return result(ctx, s, id, call)
	}
	return get(ctx, s, id, scope, call)
}
