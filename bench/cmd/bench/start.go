package main

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
)

func init() {
	programs["start"] = program{about: "from a request to the end of the first command, nothing warm", runsc: true, run: start}
	programs["exec"] = program{about: "one command in a sandbox that runs", run: execute}
}

func start(ctx context.Context, l *lab.Lab, b *book, n int) error {
	s, err := l.Server(ctx, "")
	if err != nil {
		return err
	}
	d, err := l.Docker(ctx)
	if err != nil {
		return err
	}
	r, err := l.Runsc()
	if err != nil {
		return err
	}
	b.Host.Programs["docker"] = d.Version + " " + d.Driver
	if _, err := s.NewLog(); err != nil {
		return err
	}
	err = b.run(ctx, bench.Case{
		N: orElse(n, 40),
		Measures: []bench.Measure{
			{Name: bench.CreateExecCold, Unit: "ms", Bounds: []bench.Bound{{Against: "docker", AtMost: 0.4}, {Against: "runsc", AtMost: 1}}},
			{Name: bench.WholeLifeCold, Unit: "ms"},
			{Name: bench.CreateCold, Unit: "ms"},
		},
		Subjects: []bench.Subject{bench.StartCold(s.Target), d.RunOnce(), d.RunByAPI(), r.RunOnce()},
	})
	if e := steps(s, b); err == nil {
		err = e
	}
	return err
}

// steps adds what the server reports about the parts of each start.
func steps(s *lab.Server, b *book) error {
	lines, err := s.NewLog()
	if err != nil {
		return err
	}
	var order []string
	taken := map[string][]float64{}
	for _, line := range lines {
		if line.Msg != "sandbox is running" {
			continue
		}
		var ms map[string]float64
		if err := json.Unmarshal(line.MS, &ms); err != nil {
			return err
		}
		for _, step := range stepNames(line.MS) {
			if _, known := taken[step]; !known {
				order = append(order, step)
			}
			taken[step] = append(taken[step], ms[step])
		}
	}
	for _, step := range order {
		b.Results = append(b.Results, bench.Single("start."+step, "ms", taken[step]))
	}
	return nil
}

// stepNames are the keys of an object in their order.
func stepNames(object json.RawMessage) []string {
	var names []string
	for d := json.NewDecoder(bytes.NewReader(object)); ; {
		t, err := d.Token()
		if err != nil {
			return names
		}
		if name, ok := t.(string); ok { // the values are numbers
			names = append(names, name)
		}
	}
}

func execute(ctx context.Context, l *lab.Lab, b *book, n int) error {
	s, err := l.Server(ctx, "")
	if err != nil {
		return err
	}
	d, err := l.Docker(ctx)
	if err != nil {
		return err
	}
	b.Host.Programs["docker"] = d.Version + " " + d.Driver
	container, err := d.Container("none")
	if err != nil {
		return err
	}
	sb, end, err := s.Create(ctx, bothy.SandboxCreate{})
	if err != nil {
		return err
	}
	defer end()
	return b.run(ctx, bench.Case{
		N:        orElse(n, 200),
		Measures: []bench.Measure{{Name: "exec", Unit: "ms", Bounds: []bench.Bound{{Against: "docker", AtMost: 0.1}}}},
		Subjects: []bench.Subject{bench.ExecIn(s.Target, sb.ID), d.Exec(container), d.ExecByAPI(container)},
	})
}
