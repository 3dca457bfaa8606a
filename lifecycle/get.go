package lifecycle

import (
	"context"
	"slices"

	"github.com/bothy-dev/bothy"
)

// find returns the caller's sandbox from the store. Another project's does not
// exist.
func (s *Service) find(ctx context.Context, id string, scope bothy.Scope) (*bothy.Sandbox, error) {
	caller, err := bothy.Require(ctx, scope)
	if err != nil {
		return nil, err
	}
	sb, err := s.sandbox(ctx, id)
	if err != nil {
		return nil, err
	}
	if sb.ProjectID != caller.ProjectID {
		return nil, notFound(id)
	}
	return sb, nil
}

func notFound(id string) error {
	return bothy.Errorf(bothy.CodeSandboxNotFound, "there is no sandbox %q", id).
		WithHint("`bothy ls --all` lists them.")
}

// Get returns one sandbox.
func (s *Service) Get(ctx context.Context, id string) (*bothy.Sandbox, error) {
	sb, err := s.find(ctx, id, bothy.ScopeSandboxesRead)
	return s.showBudget(sb), err
}

// List returns a page of the caller's sandboxes.
func (s *Service) List(ctx context.Context, f bothy.SandboxFilter) (bothy.Page[*bothy.Sandbox], error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return bothy.Page[*bothy.Sandbox]{}, err
	}
	p, err := s.o.Store.Sandboxes(ctx, caller.ProjectID, f)
	items := p.Items[:0]
	for _, sb := range p.Items {
		if now := s.unrecorded.row(sb.ID); now != nil {
			sb = now
		}
		if len(f.States) == 0 || slices.Contains(f.States, sb.State) {
			items = append(items, s.showBudget(sb))
		}
	}
	p.Items = items
	return p, err
}
