package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
)

func init() {
	programs["connections"] = program{about: "memory of many connections, of downloads that nobody reads, and of many gateways", run: connections}
}

const (
	// manyConnections are open at the same time in one sandbox.
	manyConnections = 1000
	// manyGateways is the number of sandboxes with a connection each, unless another number of
	// turns is requested.
	manyGateways = 200
	// endless is a download that does not end by itself.
	endless = 1 << 50
)

func connections(ctx context.Context, l *lab.Lab, b *book, n int) error {
	o, err := l.Outside(ctx)
	if err != nil {
		return err
	}
	s, err := l.Server(ctx, lab.OutsideSettings, "BOTHY_POOL=off")
	if err != nil {
		return err
	}
	idle := o.URL + "/bytes/100"
	if err := inOneSandbox(ctx, s, o, b, "connections_open", "hold", idle, manyConnections); err != nil {
		return err
	}
	if err := inOneSandbox(ctx, s, o, b, "connections_unread", "stall", fmt.Sprint(o.URL, "/bytes/", endless), manyConnections); err != nil {
		return err
	}
	return inManySandboxes(ctx, s, o, b, orElse(n, manyGateways), idle)
}

// reachAll is a sandbox that may reach the host outside. roomy is one whose kernel has room for
// data that arrives and is not read.
var (
	reachAll = bothy.SandboxCreate{Network: &bothy.Network{Mode: bothy.NetworkOpen}}
	roomy    = bothy.SandboxCreate{Network: reachAll.Network, MemoryMB: 4096}
)

// inOneSandbox runs the payload program in a role that keeps connections open, and records how
// much more the server and the sandbox hold than before.
func inOneSandbox(ctx context.Context, s *lab.Server, o *lab.Outside, b *book, name, role, url string, count int) error {
	sb, end, err := s.Create(ctx, roomy)
	if err != nil {
		return err
	}
	defer end()
	if _, err := o.InSandbox(ctx, s.Target, sb.ID); err != nil {
		return err
	}
	bench.Sleep(ctx, settle)
	server := strconv.Itoa(s.PID)
	before := pss(server)
	inside, err := s.PSSMB(sb.ID)
	if err != nil {
		return err
	}
	done, err := keepOpen(ctx, s, sb.ID, role, url, fmt.Sprint(count))
	if err != nil {
		return err
	}
	bench.Sleep(ctx, settle)
	after := pss(server)
	insideAfter, err := s.PSSMB(sb.ID)
	if err != nil {
		return err
	}
	b.Results = append(b.Results,
		bench.Single(name+".server_mb_before", "MB", []float64{before}),
		bench.Single(fmt.Sprintf("%s.server_mb_with_%d", name, count), "MB", []float64{after}, bench.Bound{AtMost: 256}),
		bench.Single(fmt.Sprintf("%s.sandbox_mb_of_%d", name, count), "MB", []float64{insideAfter - inside}))
	return done()
}

// inManySandboxes gives each of many sandboxes a connection that stays open.
func inManySandboxes(ctx context.Context, s *lab.Server, o *lab.Outside, b *book, count int, url string) error {
	bench.Sleep(ctx, settle)
	server := strconv.Itoa(s.PID)
	before := pss(server)
	var all []func() error
	for range count {
		sb, _, err := s.Create(ctx, reachAll)
		if err != nil {
			return err
		}
		if _, err := o.InSandbox(ctx, s.Target, sb.ID); err != nil {
			return err
		}
		done, err := keepOpen(ctx, s, sb.ID, "hold", url, "1")
		if err != nil {
			return err
		}
		all = append(all, done)
	}
	bench.Sleep(ctx, settle)
	used := pss(server) - before
	b.Results = append(b.Results,
		bench.Single(fmt.Sprintf("gateways.server_mb_with_%d", count), "MB", []float64{before + used}, bench.Bound{AtMost: 256 + float64(count)}),
		bench.Single("gateways.server_mb_each", "MB", []float64{used / float64(count)}))
	for _, done := range all {
		if err := done(); err != nil {
			return err
		}
	}
	return nil
}

var errReady = errors.New("ready")

// keepOpen starts the payload program and returns when all its connections are open. done tells
// it to end, and fails unless all of them were open to the end.
func keepOpen(ctx context.Context, s *lab.Server, id string, args ...string) (done func() error, err error) {
	r, err := s.Client.Exec.Exec(ctx, id, bothy.ExecRequest{
		Command: bothy.Command{Args: append([]string{lab.PayloadPath, payloadWord}, args...)}, Background: true,
	})
	if err != nil {
		return nil, err
	}
	var said strings.Builder
	err = s.Client.Exec.Output(ctx, id, r.PID, 0, func(e bothy.ExecEvent) error {
		said.WriteString(e.Data)
		if strings.Contains(said.String(), "ready\n") {
			return errReady
		}
		return nil
	})
	if !errors.Is(err, errReady) {
		return nil, fmt.Errorf("the connections did not open: %w: %s", err, &said)
	}
	return func() error {
		if err := s.Client.Exec.Stdin(ctx, id, r.PID, nil, true); err != nil {
			return err
		}
		code := -1
		err := s.Client.Exec.Output(ctx, id, r.PID, 0, func(e bothy.ExecEvent) error {
			said.WriteString(e.Data)
			if e.IsFinal {
				code = e.ExitCode
			}
			return nil
		})
		if err == nil && code != 0 {
			err = fmt.Errorf("the connections did not stay open: %s", &said)
		}
		return err
	}, nil
}
