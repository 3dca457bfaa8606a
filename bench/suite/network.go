package suite

import (
	"context"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
)

var networkJobs = []job{
	{names: []string{"gateway_gbit_open", "gateway_gbit_restricted"}, own: true, usual: 7, quick: 2, run: throughput},
}

// volume is how many bytes one turn downloads.
const volume = 1 << 30

// throughput downloads from a host in a network namespace of its own, in sandboxes
// with the two policies and in a container on Docker's bridge.
func throughput(ctx context.Context, b *bed, n int) error {
	o, err := b.lab.Outside(ctx)
	if err != nil {
		return err
	}
	s, err := b.server(ctx)
	if err != nil {
		return err
	}
	var docker lab.Runner
	if d := b.docker(ctx); d != nil {
		if docker, err = o.InContainer(d); err != nil {
			return err
		}
	}
	for _, p := range []struct {
		name   string
		policy *bothy.Network
	}{
		{"gateway_gbit_open", &bothy.Network{Mode: bothy.NetworkOpen}},
		{"gateway_gbit_restricted", &bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: []string{lab.OutsideName}}},
	} {
		sb, end, err := s.Create(ctx, bothy.SandboxCreate{Network: p.policy, CPU: 2, MemoryMB: 1024})
		if err != nil {
			return err
		}
		defer end()
		inside, err := o.InSandbox(ctx, s.Target, sb.ID)
		if err != nil {
			return err
		}
		subjects := []bench.Subject{o.Downloads("bothy", inside, volume, p.name)}
		if docker != nil {
			subjects = append(subjects, o.Downloads("docker", docker, volume, p.name))
		}
		if err := b.compare(ctx, n, []string{p.name + ":Gbit/s"}, subjects...); err != nil {
			return err
		}
	}
	return nil
}
