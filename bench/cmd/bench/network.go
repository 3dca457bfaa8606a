package main

import (
	"context"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
)

func init() {
	programs["network"] = program{about: "downloads and connections through the gateway", runsc: true, run: network}
}

const (
	// volume is how much is downloaded in one turn, slowVolume the same over a line of slowBits
	// per second, and dials the number of connections.
	volume     = 2 << 30
	slowVolume = 128 << 20
	slowBits   = 1_000_000_000
	dials      = 200
)

// Names of the measures of the network.
const (
	gbitOpen       = "gateway_gbit_open"
	gbitRestricted = "gateway_gbit_restricted"
	gbitOverGbit   = "gateway_gbit_over_1"
	connectOpen    = "connect_open"
	firstOpen      = "first_byte_open"
	connectRestr   = "connect_restricted"
	firstRestr     = "first_byte_restricted"
)

// reach are the policies that are compared. Both reach the host outside.
var reach = map[string]*bothy.Network{
	"open":       {Mode: bothy.NetworkOpen},
	"restricted": {Mode: bothy.NetworkRestricted, AllowDomains: []string{lab.OutsideName}},
}

func network(ctx context.Context, l *lab.Lab, b *book, n int) error {
	o, err := l.Outside(ctx)
	if err != nil {
		return err
	}
	s, err := l.Server(ctx, lab.OutsideSettings, "BOTHY_POOL=off")
	if err != nil {
		return err
	}
	d, err := l.Docker(ctx)
	if err != nil {
		return err
	}
	b.Host.Programs["docker"] = d.Version + " " + d.Driver
	docker, err := o.InContainer(d)
	if err != nil {
		return err
	}
	// The difference to docker is gVisor, the difference to bothy the gateway.
	gvisor, err := o.InContainer(d, "--runtime="+lab.GVisorRuntime)
	if err != nil {
		return err
	}
	in := map[string]lab.Runner{}
	for mode, policy := range reach {
		sb, end, err := s.Create(ctx, bothy.SandboxCreate{Network: policy, CPU: 2, MemoryMB: 1024})
		if err != nil {
			return err
		}
		defer end()
		if in[mode], err = o.InSandbox(ctx, s.Target, sb.ID); err != nil {
			return err
		}
	}
	download := func(name string, run lab.Runner, measure string) bench.Subject {
		return o.Downloads(name, run, volume, measure)
	}
	err = b.run(ctx, bench.Case{
		N:        orElse(n, 15),
		Measures: []bench.Measure{{Name: gbitOpen, Unit: "Gbit/s", Bounds: []bench.Bound{{Against: "docker", AtLeast: 0.8}}}},
		Subjects: []bench.Subject{
			download("bothy", in["open"], gbitOpen), download("docker", docker, gbitOpen), download("gvisor", gvisor, gbitOpen),
			download("direct", o.Direct(), gbitOpen),
		},
	})
	if err != nil {
		return err
	}
	err = b.run(ctx, bench.Case{
		N: orElse(n, 15),
		Measures: []bench.Measure{{Name: gbitRestricted, Unit: "Gbit/s",
			Bounds: []bench.Bound{{Against: "docker", AtLeast: 0.8}, {Against: "open", AtLeast: 0.9}}}},
		Subjects: []bench.Subject{
			download("bothy", in["restricted"], gbitRestricted), download("open", in["open"], gbitRestricted), download("docker", docker, gbitRestricted),
		},
	})
	if err != nil {
		return err
	}
	for _, mode := range []struct{ name, connect, first string }{
		{"open", connectOpen, firstOpen}, {"restricted", connectRestr, firstRestr},
	} {
		err := b.run(ctx, bench.Case{
			N:        orElse(n, 15),
			Measures: []bench.Measure{{Name: mode.connect, Unit: "ms"}, {Name: mode.first, Unit: "ms"}},
			Subjects: []bench.Subject{
				o.Connects("bothy", in[mode.name], dials, mode.connect, mode.first),
				o.Connects("direct", o.Direct(), dials, mode.connect, mode.first),
				o.Connects("docker", docker, dials, mode.connect, mode.first),
			},
		})
		if err != nil {
			return err
		}
	}
	if err := o.Slow(slowBits); err != nil {
		return err
	}
	return b.run(ctx, bench.Case{
		N:        orElse(n, 15),
		Measures: []bench.Measure{{Name: gbitOverGbit, Unit: "Gbit/s", Bounds: []bench.Bound{{Against: "docker", AtLeast: 0.8}}}},
		Subjects: []bench.Subject{
			o.Downloads("bothy", in["restricted"], slowVolume, gbitOverGbit), o.Downloads("open", in["open"], slowVolume, gbitOverGbit),
			o.Downloads("docker", docker, slowVolume, gbitOverGbit),
		},
	})
}
