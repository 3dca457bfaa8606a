package lifecycle

import (
	"context"
	"errors"

	"github.com/bothy-dev/bothy/store"
)

// startShared stores a starting sandbox on a cluster: the project's plan applies to all hosts
// together, so the store counts.
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

// beyondError is the caller's error for a store.Beyond.
type beyondError struct {
	error
	beyond *store.Beyond
}

func (e beyondError) Unwrap() []error { return []error{e.error, e.beyond} }

// isBeyond reports whether the store refused a start because of a plan. Nothing of it is stored
// then.
func isBeyond(err error) bool { return errors.As(err, new(*store.Beyond)) }
