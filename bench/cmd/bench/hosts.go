package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
	"github.com/bothy-dev/bothy/store/postgres/pgtest"
)

func init() {
	programs["drain"] = program{about: "a drain of one of three hosts with -n sandboxes (100) in which a process runs: needs Debian's postgresql", run: drain}
	programs["through"] = program{about: "a command, and a file, through a host that does not have the sandbox, against its own: needs Debian's postgresql", run: through}
	programs["lost"] = program{about: "until a sandbox of a host that lost its power answers at another: needs Debian's postgresql, and builds an S3 server", run: lost}
}

// hostNames are the hosts of the clusters here.
var hostNames = []string{"one", "two", "three"}

// cluster starts three hosts with a database of their own. It ends after them: they use it to
// end their sandboxes.
func cluster(ctx context.Context, l *lab.Lab, settings string) ([]*lab.Server, error) {
	pg, err := pgtest.Start(true)
	if err != nil {
		return nil, err
	}
	l.Later(pg.Stop)
	return l.Hosts(ctx, hostNames, pg.URL("postgres"), settings)
}

func stateOf(ctx context.Context, s *lab.Server, names []string, state bothy.HostState) error {
	for _, name := range names {
		if _, err := s.Client.Hosts.UpdateHost(ctx, name, bothy.HostUpdate{State: state}); err != nil {
			return err
		}
	}
	return nil
}

// counting runs a process in a sandbox that counts once per second, and returns which process it
// is.
const counting = `mkfifo /tmp/never; setsid -f bash -c 'echo $$ >/tmp/pid; exec 3<>/tmp/never; n=0; while :; do n=$((n+1)); echo $n >/tmp/count; read -t 1 -u 3; done' >/dev/null 2>&1 </dev/null; until [ -s /tmp/count ]; do sleep 0.05; done; cat /tmp/pid`

// counts returns once the process has counted on.
const counts = ` && n=$(cat /tmp/count) && until [ "$(cat /tmp/count)" -gt "${n:-0}" ] 2>/dev/null; do sleep 0.1; done`

// drainUsers is how many use sandboxes, one after the other, during a drain.
const drainUsers = 4

// drain moves all sandboxes of a host to two others.
func drain(ctx context.Context, l *lab.Lab, b *book, n int) error {
	n = orElse(n, 100)
	hosts, err := cluster(ctx, l, "sandboxes:\n  min_free_memory_mb: 256\n")
	if err != nil {
		return err
	}
	one := hosts[0]
	if err := stateOf(ctx, one, hostNames[1:], bothy.HostCordoned); err != nil {
		return err
	}
	ids, pids := make([]string, n), make([]string, n)
	for i := range n {
		sb, _, err := one.Create(ctx, bothy.SandboxCreate{MemoryMB: 64, DiskMB: 64})
		if err != nil {
			return fmt.Errorf("sandbox %d: %w", i, err)
		}
		ids[i] = sb.ID
		r, err := one.Run(ctx, sb.ID, bothy.Command{Line: counting})
		if err != nil {
			return fmt.Errorf("sandbox %d: %w", i, err)
		}
		pids[i] = strings.TrimSpace(r.Stdout)
	}
	if err := stateOf(ctx, one, hostNames[1:], bothy.HostUp); err != nil {
		return err
	}
	since, err := one.Client.Events.LastEvent(ctx)
	if err != nil {
		return err
	}
	uses, failed := atomic.Int64{}, atomic.Int64{}
	var first atomic.Pointer[error]
	using, enough := context.WithCancel(ctx)
	var users sync.WaitGroup
	var took [drainUsers][]float64
	for u := range drainUsers {
		users.Go(func() {
			for i := u; using.Err() == nil; i += drainUsers {
				began := time.Now()
				_, err := hosts[i%len(hosts)].Run(ctx, ids[i%n], bench.True)
				took[u] = append(took[u], bench.Since(began))
				if uses.Add(1); err != nil {
					failed.Add(1)
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	began := time.Now()
	_, err = hosts[2].Client.Hosts.UpdateHost(ctx, "one", bothy.HostUpdate{State: bothy.HostDraining})
	for left := n; err == nil && left > 0; {
		time.Sleep(20 * time.Millisecond)
		left, err = sandboxesOf(ctx, hosts[2], "one")
	}
	total := time.Since(began)
	enough()
	users.Wait()
	if err != nil {
		return err
	}
	var still []float64
	err = one.Client.Events.Events(ctx, bothy.EventFilter{Since: since}, func(e bothy.Event) error {
		if ms, err := strconv.ParseFloat(e.Data["still_ms"], 64); err == nil && e.Type == bothy.EventSandboxMoved {
			still = append(still, ms)
		}
		return nil
	})
	if err != nil {
		return err
	}
	gone := 0
	for i, id := range ids {
		r, err := hosts[1].Run(ctx, id, bothy.Command{Line: "kill -0 " + pids[i] + counts})
		if err != nil {
			gone++
			fmt.Printf("sandbox %d is lost: %v %+v\n", i, err, r)
		}
	}
	r := bench.Single("drain.still", "ms", still, bench.Bound{AtMost: 500})
	r.Notes = append(r.Notes, fmt.Sprintf("%d sandboxes, %d lost, all moved after %.1f s; %d commands meanwhile, %d failed", n, gone, total.Seconds(), uses.Load(), failed.Load()))
	b.Results = append(b.Results, r, bench.Single("drain.total", "s", []float64{total.Seconds()}), bench.Single("drain.command", "ms", slices.Concat(took[:]...)))
	switch {
	case gone > 0:
		err = fmt.Errorf("%d of %d sandboxes are lost", gone, n)
	case failed.Load() > 0:
		err = fmt.Errorf("%d of %d commands failed; the first: %w", failed.Load(), uses.Load(), *first.Load())
	case len(still) != n:
		err = fmt.Errorf("%d of %d sandboxes were moved", len(still), n)
	}
	return err
}

func sandboxesOf(ctx context.Context, asked *lab.Server, name string) (int, error) {
	all, err := asked.Client.Hosts.Hosts(ctx)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(all, func(h bothy.ClusterHost) bool { return h.Name == name })
	if i < 0 {
		return 0, errors.New("there is no host " + name)
	}
	return all[i].Sandboxes, nil
}

// throughAtMostMS is how much longer a command may take through another host.
const throughAtMostMS = 1

// through takes turns between the host that has a sandbox and another.
func through(ctx context.Context, l *lab.Lab, b *book, n int) error {
	hosts, err := cluster(ctx, l, "")
	if err != nil {
		return err
	}
	sb, _, err := hosts[0].Create(ctx, bothy.SandboxCreate{MemoryMB: 4 * throughMB})
	if err != nil {
		return err
	}
	if _, err := hosts[0].Client.Hosts.MoveSandbox(ctx, sb.ID, bothy.SandboxMove{Host: "one"}); err != nil && bothy.ErrorCode(err) != bothy.CodeConflict {
		return err
	}
	const measure = "through.exec"
	var own float64
	var more []float64
	once := func(s *lab.Server, done func(took float64)) func(context.Context, bench.Record) error {
		return func(ctx context.Context, record bench.Record) error {
			began := time.Now()
			if _, err := s.Run(ctx, sb.ID, bench.True); err != nil {
				return err
			}
			took := bench.Since(began)
			record(measure, took)
			done(took)
			return nil
		}
	}
	err = b.run(ctx, bench.Case{
		N: orElse(n, 500), Measures: []bench.Measure{{Name: measure, Unit: "ms"}},
		Subjects: []bench.Subject{
			{Name: "own host", Once: once(hosts[0], func(took float64) { own = took })},
			{Name: "another host", Once: once(hosts[1], func(took float64) { more = append(more, took-own) })},
		},
	})
	if len(more) > 1 {
		b.Results = append(b.Results, bench.Single("through.exec_more", "ms", more[1:], bench.Bound{AtMost: throughAtMostMS}))
	}
	return errors.Join(err, throughFile(ctx, b, hosts, sb.ID))
}

// Size of a file that is read and written through hosts, how often, and how fast at least
// through another, by its own.
const (
	throughMB      = 512
	throughFiles   = 10
	throughAtLeast = 0.9
)

// throughFile takes turns like through, with a large file. Both hosts, the sandbox and the
// client share this computer's processors.
func throughFile(ctx context.Context, b *book, hosts []*lab.Server, id string) error {
	const read, written, file = "through.read", "through.write", "/dev/shm/large"
	if _, err := hosts[0].Run(ctx, id, bothy.Command{Line: fmt.Sprintf("head -c %dM /dev/zero >%s", throughMB, file)}); err != nil {
		return err
	}
	once := func(s *lab.Server) func(context.Context, bench.Record) error {
		return func(ctx context.Context, record bench.Record) error {
			began := time.Now()
			r, _, err := s.Client.Files.Read(ctx, id, file, "root")
			if err != nil {
				return err
			}
			n, err := io.Copy(io.Discard, r)
			r.Close()
			if err != nil {
				return err
			}
			if n != throughMB<<20 {
				return fmt.Errorf("read %d bytes of %d MB", n, throughMB)
			}
			record(read, throughMB*1000/bench.Since(began))
			began = time.Now()
			_, err = s.Client.Files.Write(ctx, id, file, io.LimitReader(zeros{}, n), bothy.WriteOptions{User: "root"})
			if err == nil {
				record(written, throughMB*1000/bench.Since(began))
			}
			return err
		}
	}
	bound := bench.Bound{Against: "own host", AtLeast: throughAtLeast}
	return b.run(ctx, bench.Case{
		N:        throughFiles,
		Measures: []bench.Measure{{Name: read, Unit: "MB/s", Bounds: []bench.Bound{bound}}, {Name: written, Unit: "MB/s", Bounds: []bench.Bound{bound}}},
		Subjects: []bench.Subject{{Name: "another host", Once: once(hosts[1])}, {Name: "own host", Once: once(hosts[0])}},
	})
}

// zeros is an endless file.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// lostAtMostS is how long sandboxes of a host that lost its power may be away.
const lostAtMostS = 25

// lost makes a host lose its power, and waits for its sandboxes on another.
func lost(ctx context.Context, l *lab.Lab, b *book, n int) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the folder of the module: %w", err)
	}
	program, err := exec.CommandContext(ctx, filepath.Join(strings.TrimSpace(string(root)), "scripts", "versitygw")).Output()
	if err != nil {
		return fmt.Errorf("build an S3 server: %w", err)
	}
	blobs, err := l.Objects(ctx, strings.TrimSpace(string(program)))
	if err != nil {
		return err
	}
	hosts, err := cluster(ctx, l, "blobs: "+blobs+"\n")
	if err != nil {
		return err
	}
	if err := stateOf(ctx, hosts[0], hostNames[:2], bothy.HostCordoned); err != nil {
		return err
	}
	n = orElse(n, 10)
	ids, pids := make([]string, n), make([]string, n)
	for i := range n {
		sb, _, err := hosts[2].Create(ctx, bothy.SandboxCreate{MemoryMB: 64, AutoResume: true})
		if err != nil {
			return err
		}
		r, err := hosts[2].Run(ctx, sb.ID, bothy.Command{Line: counting})
		if err != nil {
			return err
		}
		ids[i], pids[i] = sb.ID, strings.TrimSpace(r.Stdout)
		if _, err := hosts[2].Client.Snapshots.CreateSnapshot(ctx, sb.ID, bothy.SnapshotCreate{Wait: bothy.DurableStore}); err != nil {
			return err
		}
	}
	if err := stateOf(ctx, hosts[0], hostNames[:2], bothy.HostUp); err != nil {
		return err
	}
	began := time.Now()
	if err := hosts[2].Kill(); err != nil {
		return err
	}
	took := make([]float64, n)
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() {
			for ctx.Err() == nil && time.Since(began) < 5*time.Minute {
				if _, err := hosts[i%2].Run(ctx, id, bothy.Command{Line: "kill -0 " + pids[i]}); err == nil {
					took[i] = time.Since(began).Seconds()
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	if i := slices.Index(took, 0); i >= 0 {
		return fmt.Errorf("sandbox %s is not back", ids[i])
	}
	b.Results = append(b.Results, bench.Single("lost.back", "s", took, bench.Bound{AtMost: lostAtMostS}))
	return nil
}
