package lifecycle

import (
	"context"
	"errors"

	"github.com/bothy-dev/bothy/store"
)

// startShared stores a sandbox that begins to run, where hosts share the store: its project's
// plan holds for all of them together, so the store counts.
func (s *Service) startShared(ctx context.Context, sb *store.Sandbox, created bool) error {
	p, err := s.admission.Plan(ctx, sb.ProjectID)
	if err != nil {
		return err
	}
	b := store.StartBounds{Sandboxes: p.Sandboxes}
	if created {
		b.PerMinute = p.CreatesPerMinute
	}
	if b == (store.StartBounds{}) {
		return s.o.Store.PutSandbox(ctx, sb)
	}
	err = s.o.StartShared(ctx, sb, b)
	var beyond *store.Beyond
	if errors.As(err, &beyond) {
		return beyondError{s.admission.Beyond(sb.ProjectID, p, beyond.Live, beyond.Wait), beyond}
	}
	return err
}

// beyondError is what a caller is told of a store.Beyond.
type beyondError struct {
	error
	beyond *store.Beyond
}

func (e beyondError) Unwrap() []error { return []error{e.error, e.beyond} }

// isBeyond reports whether the store refused a start because of a plan, so that nothing is
// stored of it.
func isBeyond(err error) bool { return errors.As(err, new(*store.Beyond)) }
