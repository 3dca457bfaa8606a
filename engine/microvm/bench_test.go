package microvm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/microvm"
	"github.com/bothy-dev/bothy/gateway"
	"github.com/bothy-dev/bothy/guest/client"
)

// bench is an engine whose machines are timed.
type bench struct {
	*testing.B
	e   *microvm.Engine
	dir string
	n   int
}

func newBench(b *testing.B) *bench {
	dir := b.TempDir()
	parent := fmt.Sprintf("bothy-vmtest-%d-%d", os.Getpid(), parents.Add(1))
	e, err := microvm.New(options(dir, parent))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { e.Close() })
	return &bench{B: b, e: e, dir: dir}
}

// answer makes a machine and returns how long it took until its guest answered.
func (b *bench) answer(make func(id string) (bothy.Machine, error)) (bothy.Machine, *client.Client, time.Duration) {
	b.Helper()
	b.n++
	began := time.Now()
	m, err := make(fmt.Sprintf("m%d", b.n))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Destroy(context.Background()) })
	dev, err := m.NetDevice(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	g, err := gateway.New(dev, gateway.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { g.Close() })
	c := client.New(func(ctx context.Context) (net.Conn, error) { return g.Dial(ctx, bothy.GuestPort) }, "key")
	b.Cleanup(c.CloseIdle)
	if err := c.WaitReady(b.Context()); err != nil {
		b.Fatal(err)
	}
	return m, c, time.Since(began)
}

func (b *bench) boot(memoryMB int) (bothy.Machine, *client.Client, time.Duration) {
	return b.answer(func(id string) (bothy.Machine, error) {
		s := spec(id)
		s.Limits.MemoryMB = memoryMB
		return b.e.Start(b.Context(), s)
	})
}

func (b *bench) resume(memoryMB int, from string) (bothy.Machine, time.Duration) {
	m, _, d := b.answer(func(id string) (bothy.Machine, error) {
		s := spec(id)
		s.Limits.MemoryMB = memoryMB
		return b.e.Restore(b.Context(), s, from)
	})
	return m, d
}

// touched boots a machine that uses this much memory, and returns a snapshot of it.
func (b *bench) touched(memoryMB, mb int) (dir string, took time.Duration) {
	b.Helper()
	m, c, took := b.boot(memoryMB)
	if mb > 0 {
		if _, err := c.Adopt(b.Context(), client.Identity{Key: "key", User: "root", Cwd: "/"}); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Exec(b.Context(), bothy.ExecRequest{Command: bothy.Command{Args: []string{"/probe", "eat", fmt.Sprint(mb)}}, User: "root", Background: true}); err != nil {
			b.Fatal(err)
		}
		for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			st, err := m.Stats(b.Context())
			if err == nil && st.MemoryBytes >= int64(mb)<<20 {
				break
			}
			if time.Now().After(deadline) {
				b.Fatalf("the machine uses %d bytes", st.MemoryBytes)
			}
		}
	}
	dir = filepath.Join(b.dir, fmt.Sprintf("snapshot%d", b.n))
	if err := os.Mkdir(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	if err := m.Snapshot(b.Context(), bothy.SnapshotOptions{MemoryDir: dir, Stop: true}); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(began).Milliseconds()), fmt.Sprintf("ms/snapshot-%dMB", mb))
	if err := m.Destroy(b.Context()); err != nil {
		b.Fatal(err)
	}
	return dir, took
}

func median(all []time.Duration) float64 {
	slices.Sort(all)
	return float64(all[len(all)/2].Microseconds()) / 1000
}

// rounds is how often each way is measured, in turn.
const rounds = 7

// BenchmarkFirstAnswer compares a boot with a resume, and resumes with much and little memory.
func BenchmarkFirstAnswer(b *testing.B) {
	x := newBench(b)
	golden, _ := x.touched(256, 0)
	little, _ := x.touched(768, 32)
	much, _ := x.touched(768, 512)
	for b.Loop() {
		var boots, resumes, littles, muches []time.Duration
		for range rounds {
			m, _, d := x.boot(256)
			m.Destroy(b.Context())
			boots = append(boots, d)
			for from, to := range map[string]*[]time.Duration{golden: &resumes, little: &littles, much: &muches} {
				mb := 768
				if from == golden {
					mb = 256
				}
				m, d := x.resume(mb, from)
				m.Destroy(b.Context())
				*to = append(*to, d)
			}
		}
		b.ReportMetric(median(boots), "ms/boot")
		b.ReportMetric(median(resumes), "ms/resume")
		b.ReportMetric(median(resumes)/median(boots), "resume/boot")
		b.ReportMetric(median(littles), "ms/resume-32MB")
		b.ReportMetric(median(muches), "ms/resume-512MB")
		b.ReportMetric(median(muches)/median(littles), "512MB/32MB")
	}
}

// BenchmarkForks measures the host's memory for ten idle copies, and the processor time of one.
func BenchmarkForks(b *testing.B) {
	x := newBench(b)
	from, _ := x.touched(256, 32)
	const forks = 10
	for b.Loop() {
		var all []bothy.Machine
		for range forks {
			m, _ := x.resume(256, from)
			all = append(all, m)
		}
		time.Sleep(3 * time.Second)
		var sum float64
		for _, m := range all {
			sum += pss(b, m)
		}
		used := cpu(b, all[0])
		const watched = 10 * time.Second
		time.Sleep(watched)
		b.ReportMetric(sum/forks, "MB/fork")
		b.ReportMetric((cpu(b, all[0])-used)/watched.Seconds()*100, "%cpu-idle")
		for _, m := range all {
			m.Destroy(b.Context())
		}
	}
}

func cpu(b *testing.B, m bothy.Machine) float64 {
	st, err := m.Stats(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return st.CPUSeconds
}

// pss is a machine's share of the host's memory in MB.
func pss(b *testing.B, m bothy.Machine) float64 {
	var state struct{ PID int }
	if err := json.Unmarshal(m.State(), &state); err != nil {
		b.Fatal(err)
	}
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", state.PID))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(rollup)) {
		var kb float64
		if _, err := fmt.Sscanf(line, "Pss: %f kB", &kb); err == nil {
			return kb / 1024
		}
	}
	b.Fatal("no PSS in smaps_rollup")
	return 0
}
