package apitest

import (
	"context"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// Host implements bothy.HostService.
type Host struct{}

// Host implements bothy.HostService.
func (*Host) Host(ctx context.Context) (*bothy.Host, error) {
	if _, err := bothy.RequireOperator(ctx, bothy.ScopeAdmin); err != nil {
		return nil, err
	}
	return &bothy.Host{CPUs: 2, Findings: []bothy.HostFinding{{Name: "root", Status: "ok", Detail: "Running as root."}}}, nil
}

// Cluster is a bothy.ClusterService of two hosts.
type Cluster struct {
	mu sync.Mutex
	// cordoned is the desired state of the host two, which is lost.
	cordoned, removed bool
}

func (c *Cluster) hosts(ctx context.Context) ([]bothy.ClusterHost, error) {
	if _, err := bothy.RequireOperator(ctx, bothy.ScopeAdmin); err != nil {
		return nil, err
	}
	two := bothy.ClusterHost{Name: "two", State: bothy.HostDead, Address: "192.0.2.2:7710", LeaseSeconds: -60}
	if c.cordoned {
		two.State = bothy.HostCordoned
	}
	all := []bothy.ClusterHost{{Name: "one", State: bothy.HostUp, Address: "192.0.2.1:7710", Self: true, LeaseSeconds: 12, HostFigures: bothy.HostFigures{CPUs: 2}}, two}
	if c.removed {
		all = all[:1]
	}
	return all, nil
}

// Hosts implements bothy.ClusterService.
func (c *Cluster) Hosts(ctx context.Context) ([]bothy.ClusterHost, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hosts(ctx)
}

// InviteHost implements bothy.ClusterService.
func (c *Cluster) InviteHost(ctx context.Context) (*bothy.HostInvitation, error) {
	if _, err := bothy.RequireOperator(ctx, bothy.ScopeAdmin); err != nil {
		return nil, err
	}
	return &bothy.HostInvitation{Token: "bothyhost_x", ExpiresAt: time.Now().Add(time.Hour), Command: "sudo bothy host join bothyhost_x"}, nil
}

// MoveSandbox implements bothy.ClusterService.
func (c *Cluster) MoveSandbox(ctx context.Context, id string, m bothy.SandboxMove) (*bothy.MovedSandbox, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.hosts(ctx); err != nil {
		return nil, err
	}
	if m.Host != "" && m.Host != "one" {
		return nil, noHost(m.Host)
	}
	return &bothy.MovedSandbox{SandboxID: id, From: "two", To: "one", StillMS: 120}, nil
}

// UpdateHost implements bothy.ClusterService.
func (c *Cluster) UpdateHost(ctx context.Context, name string, u bothy.HostUpdate) (*bothy.ClusterHost, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, err := c.hosts(ctx)
	if err != nil {
		return nil, err
	}
	if name != "two" || c.removed {
		return nil, noHost(name)
	}
	c.cordoned = u.State == bothy.HostCordoned
	all[1].State = u.State
	return &all[1], nil
}

// RemoveHost implements bothy.ClusterService.
func (c *Cluster) RemoveHost(ctx context.Context, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.hosts(ctx); err != nil {
		return err
	}
	if name != "two" || c.removed {
		return noHost(name)
	}
	c.removed = true
	return nil
}

func noHost(name string) error {
	return bothy.Errorf(bothy.CodeNotFound, "there is no host %q", name).WithHint("`bothy host ls` lists them.")
}
