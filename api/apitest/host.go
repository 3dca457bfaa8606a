package apitest

import (
	"context"

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
