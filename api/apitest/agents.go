package apitest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// Agents is a bothy.AgentService without a service behind it.
type Agents struct {
	mu  sync.Mutex
	all []*bothy.AgentAttachment
}

// AttachAgents implements bothy.AgentService.
func (s *Agents) AttachAgents(ctx context.Context, req bothy.AgentAttach) (*bothy.AgentAttachment, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &bothy.AgentAttachment{
		ID: fmt.Sprintf("agt_%d", len(s.all)), Environment: req.Environment, URL: bothy.AgentsURL, CreatedAt: time.Now(), State: bothy.AgentsWaiting,
		MaxSessions: 10, Sessions: []bothy.AgentSession{}, ProjectID: caller.ProjectID,
	}
	s.all = append(s.all, a)
	return a, nil
}

// AgentAttachments implements bothy.AgentService.
func (s *Agents) AgentAttachments(ctx context.Context) ([]*bothy.AgentAttachment, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var mine []*bothy.AgentAttachment
	for _, a := range s.all {
		if a.ProjectID == caller.ProjectID {
			mine = append(mine, a)
		}
	}
	return mine, nil
}

// AgentAttachment implements bothy.AgentService.
func (s *Agents) AgentAttachment(ctx context.Context, id string) (*bothy.AgentAttachment, error) {
	all, err := s.AgentAttachments(ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(all, func(a *bothy.AgentAttachment) bool { return a.ID == id || a.Environment == id }); i >= 0 {
		return all[i], nil
	}
	return nil, bothy.Errorf(bothy.CodeNotFound, "no environment is attached as %q", id)
}

// DetachAgents implements bothy.AgentService.
func (s *Agents) DetachAgents(ctx context.Context, id string) error {
	a, err := s.AgentAttachment(ctx, id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = slices.DeleteFunc(s.all, func(x *bothy.AgentAttachment) bool { return x == a })
	return nil
}
