package suite

import (
	"context"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
)

var networkJobs = []job{
	{names: []string{"gateway_gbit_open", "gateway_gbit_restricted"}, own: true, usual: 7, quick: 2, run: throughput},
	{
		names: []string{"gateway_connects_open", "gateway_connect_slowest_open", "gateway_connects_restricted", "gateway_connect_slowest_restricted"},
		own:   true, usual: 3, quick: 1, run: connections,
	},
}

const (
	// volume is how many bytes one turn downloads.
	volume = 1 << 30
	// A turn makes so many connections, so many concurrently.
	manyConnections, connectionsAtOnce = 5000, 64
)

// throughput downloads from a host in a network namespace of its own, in sandboxes with the two
// policies and in a container on Docker's bridge.
func throughput(ctx context.Context, b *bed, n int) error {
	return b.outside(ctx, n, func(o *lab.Outside, name string, run lab.Runner, mode string) (bench.Subject, []string) {
		measure := "gateway_gbit_" + mode
		return o.Downloads(name, run, volume, measure), []string{measure + ":Gbit/s"}
	})
}

// connections makes many short connections to the same host, from the same places.
func connections(ctx context.Context, b *bed, n int) error {
	return b.outside(ctx, n, func(o *lab.Outside, name string, run lab.Runner, mode string) (bench.Subject, []string) {
		rate, slowest := "gateway_connects_"+mode, "gateway_connect_slowest_"+mode
		return o.Bursts(name, run, manyConnections, connectionsAtOnce, rate, slowest), []string{rate + ":per second", slowest}
	})
}

// outside measures access to a host in a network namespace of its own, under both policies and
// from a container on Docker's bridge. subject says what is measured.
func (b *bed) outside(ctx context.Context, n int, subject func(o *lab.Outside, name string, run lab.Runner, mode string) (bench.Subject, []string)) error {
	o, err := b.outsideHost(ctx)
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
	for _, policy := range []*bothy.Network{
		{Mode: bothy.NetworkOpen}, {Mode: bothy.NetworkRestricted, AllowDomains: []string{lab.OutsideName}},
	} {
		sb, end, err := s.Create(ctx, bothy.SandboxCreate{Network: policy, CPU: 2, MemoryMB: 1024})
		if err != nil {
			return err
		}
		defer end()
		inside, err := o.InSandbox(ctx, s.Target, sb.ID)
		if err != nil {
			return err
		}
		one, measures := subject(o, "bothy", inside, string(policy.Mode))
		subjects := []bench.Subject{one}
		if docker != nil {
			one, _ = subject(o, "docker", docker, string(policy.Mode))
			subjects = append(subjects, one)
		}
		if err := b.compare(ctx, n, measures, subjects...); err != nil {
			return err
		}
	}
	return nil
}

// outsideHost starts the host outside when it is first needed.
func (b *bed) outsideHost(ctx context.Context) (*lab.Outside, error) {
	if b.host == nil {
		o, err := b.lab.Outside(ctx)
		if err != nil {
			return nil, err
		}
		b.host = o
	}
	return b.host, nil
}
