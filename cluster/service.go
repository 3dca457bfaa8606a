package cluster

import (
	"context"
	"slices"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Service is the bothy.ClusterService. Without a store it is that of a server that is alone.
type Service struct {
	Store       store.Hosts
	Invitations *Invitations
}

var _ bothy.ClusterService = (*Service)(nil)

// check refuses who may not manage hosts, and where there are none to manage.
func (s *Service) check(ctx context.Context) error {
	if _, err := bothy.RequireOperator(ctx, bothy.ScopeAdmin); err != nil {
		return err
	}
	if s.Store == nil {
		return bothy.Errorf(bothy.CodeConflict, "this server is alone, and no host of a cluster").
			WithHint("Set store and cluster in its settings: see docs/cluster.md.")
	}
	return nil
}

// Hosts implements bothy.ClusterService.
func (s *Service) Hosts(ctx context.Context) ([]bothy.ClusterHost, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	return s.Store.Hosts(ctx)
}

// InviteHost implements bothy.ClusterService.
func (s *Service) InviteHost(ctx context.Context) (*bothy.HostInvitation, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	return s.Invitations.Invite(ctx)
}

// SetHostState implements bothy.ClusterService.
func (s *Service) SetHostState(ctx context.Context, name string, state bothy.HostState) (*bothy.ClusterHost, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	if state != bothy.HostUp && state != bothy.HostCordoned {
		return nil, bothy.Errorf(bothy.CodeInvalid, "a host cannot be made %q", state).WithHint("The states are up and cordoned.")
	}
	if err := s.Store.SetHostState(ctx, name, state); err != nil {
		return nil, err
	}
	hosts, err := s.Store.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(hosts, func(h bothy.ClusterHost) bool { return h.Name == name })
	if i < 0 {
		return nil, bothy.Errorf(bothy.CodeNotFound, "there is no host %q", name).WithHint("`bothy host ls` lists them.")
	}
	return &hosts[i], nil
}

// RemoveHost implements bothy.ClusterService.
func (s *Service) RemoveHost(ctx context.Context, name string) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	return s.Store.RemoveHost(ctx, name)
}
