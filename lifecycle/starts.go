package lifecycle

import (
	"context"
	"errors"

	"github.com/bothy-dev/bothy/store"
)

// storeStart stores a starting sandbox. On a cluster the project's plan applies to all hosts
// together, so the store counts.
func (s *Service) storeStart(ctx context.Context, sb *store.Sandbox, created bool) error {
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
	err = s.o.Cluster.StartSandbox(ctx, sb, b)
	var beyond *store.PlanExceeded
	if errors.As(err, &beyond) {
		return planExceededError{s.admission.PlanExceeded(sb.ProjectID, p, beyond.Live, beyond.Wait), beyond}
	}
	return err
}

// planExceededError is the caller's error for a store.PlanExceeded.
type planExceededError struct {
	error
	beyond *store.PlanExceeded
}

func (e planExceededError) Unwrap() []error { return []error{e.error, e.beyond} }

// isPlanExceeded reports whether the store refused a start because of a plan. Nothing of it is stored
// then.
func isPlanExceeded(err error) bool { return errors.As(err, new(*store.PlanExceeded)) }
