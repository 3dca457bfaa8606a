package cluster

import (
	"context"
	"slices"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Service implements bothy.ClusterService. Store is nil on a server without a cluster.
type Service struct {
	Store       store.Hosts
	Invitations *Invitations
	Mover       *Mover
}

var _ bothy.ClusterService = (*Service)(nil)

// check returns an error unless the caller is an operator and the server is part of a cluster.
func (s *Service) check(ctx context.Context) error {
	if _, err := bothy.RequireOperator(ctx, bothy.ScopeAdmin); err != nil {
		return err
	}
	if s.Store == nil {
		return bothy.Errorf(bothy.CodeConflict, "this server is not part of a cluster").
			WithHint("Set store and cluster in its settings: see docs/cluster.md.")
	}
	return nil
}

// Hosts implements bothy.ClusterService.
func (s *Service) Hosts(ctx context.Context) ([]bothy.ClusterHost, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	hosts, err := s.Store.Hosts(ctx)
	setProblems(hosts)
	return hosts, err
}

// InviteHost implements bothy.ClusterService.
func (s *Service) InviteHost(ctx context.Context) (*bothy.HostInvitation, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	return s.Invitations.Invite(ctx)
}

// UpdateHost implements bothy.ClusterService.
func (s *Service) UpdateHost(ctx context.Context, name string, u bothy.HostUpdate) (*bothy.ClusterHost, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	switch {
	case u.State != bothy.HostUp && u.State != bothy.HostCordoned && u.State != bothy.HostDraining:
		return nil, bothy.Errorf(bothy.CodeInvalid, "a host cannot be made %q", u.State).WithHint("The states are up, cordoned and draining.")
	case u.UntilRestart && u.State != bothy.HostDraining:
		return nil, bothy.Errorf(bothy.CodeInvalid, "until_restart cannot be combined with the state %s", u.State).WithHint("Use until_restart only with draining.")
	}
	if err := s.Store.UpdateHost(ctx, name, u); err != nil {
		return nil, err
	}
	hosts, err := s.Store.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	setProblems(hosts)
	i := slices.IndexFunc(hosts, func(h bothy.ClusterHost) bool { return h.Name == name })
	if i < 0 {
		return nil, noHost(name)
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

// MoveSandbox implements bothy.ClusterService, on the host that has the sandbox.
func (s *Service) MoveSandbox(ctx context.Context, id string, m bothy.SandboxMove) (*bothy.MovedSandbox, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	return s.Mover.Move(ctx, id, m.Host)
}
