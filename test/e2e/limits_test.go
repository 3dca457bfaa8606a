package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// Half a processor does about half of the work of a whole one in the same time. A sandbox never gets more
// than its share. On a busy host it gets less, and then the results cannot be compared.
func TestHalfAProcessor(t *testing.T) {
	half, whole := newBox(t, bothy.SandboxCreate{CPU: 0.5}), newBox(t, bothy.SandboxCreate{CPU: 1})
	const seconds = 3
	req := half.program("", "count.py", fmt.Sprint(seconds))
	whole.program("", "count.py")
	var unlike string // a ratio that does not match the limits
	for range 5 {
		var did, got [2]float64
		var all sync.WaitGroup
		for i, b := range []*box{half, whole} {
			all.Go(func() { did[i], got[i] = b.count(req) })
		}
		all.Wait()
		if did[0] == 0 || did[1] == 0 {
			t.Fatalf("the programs did nothing: %v", did)
		}
		if got[0] < 0.4*seconds || got[1] < 0.65*seconds {
			t.Logf("the machine is busy: the sandboxes got %.2f s of it", got)
			continue
		}
		if ratio := did[1] / did[0]; ratio < 1.15 || ratio > 3.5 {
			unlike = fmt.Sprintf("one processor did %.2f of what half a processor did, want about 2 (%.2f s)", ratio, got)
			continue
		}
		return
	}
	if unlike != "" {
		t.Error(unlike)
	}
}

// count returns how far a program counts and how much processor time it got, and checks that this is
// within the limit.
func (b *box) count(req bothy.ExecRequest) (did, used float64) {
	before, start := b.metrics(), time.Now()
	r, err := b.exec(req)
	after, took := b.metrics(), time.Since(start)
	if err != nil {
		b.Error(err)
		return 0, 0
	}
	used = after.CPUSeconds - before.CPUSeconds
	may := after.CPUCount * took.Seconds()
	// The kernel grants shares of a tenth of a second, and may grant one early.
	if used > may*1.1+0.2 {
		b.Errorf("%.1f processors used %.2f s in %s", after.CPUCount, used, took)
	}
	if did, err = strconv.ParseFloat(strings.TrimSpace(r.Stdout), 64); err != nil {
		b.Error(err)
	}
	return did, used
}

func (b *box) metrics() *bothy.Metrics {
	m, err := b.s.Metrics.Metrics(b.ctx, b.id)
	if err != nil {
		b.Errorf("metrics: %v", err)
		return &bothy.Metrics{}
	}
	return m
}

func TestLimitsAreShownInside(t *testing.T) {
	t.Parallel()
	for _, want := range []bothy.SandboxCreate{
		{CPU: 0.5, MemoryMB: 128, DiskMB: 64},
		{CPU: 1, MemoryMB: 512, DiskMB: 2048},
		{CPU: 3, MemoryMB: 1000, DiskMB: 500},
	} {
		b := newBox(t, want)
		cpus := max(1, int(want.CPU))
		for command, shown := range map[string]int{
			"nproc":                            cpus,
			"grep -c ^processor /proc/cpuinfo": cpus,
			"awk '/^MemTotal/ {print int($2/1024)}' /proc/meminfo":  want.MemoryMB,
			"df -m --output=size / | tail -1 | tr -d ' '":           want.DiskMB,
			"df -m --output=size /workspace | tail -1 | tr -d ' '":  want.DiskMB,
			"python3 -c 'import os; print(os.cpu_count())'":         cpus,
			"df -m --output=size /dev/shm | tail -1 | tr -d ' '":    want.MemoryMB / 2,
			"echo $(($(ulimit -u) <= 2048 && $(ulimit -u) >= 128))": 1,
		} {
			if got := b.sh("", command); got != strconv.Itoa(shown) {
				t.Errorf("%+v: %s shows %s, want %d", want, command, got, shown)
			}
		}
		sb, m := b.get(), b.metrics()
		if sb.CPU != want.CPU || sb.MemoryMB != want.MemoryMB || sb.DiskMB != want.DiskMB {
			t.Errorf("requested %+v and got %+v", want, sb)
		}
		if m.CPUCount != want.CPU || m.MemoryLimitBytes != int64(want.MemoryMB)<<20 || m.DiskLimitBytes != int64(want.DiskMB)<<20 {
			t.Errorf("requested %+v and measured %+v", want, m)
		}
	}
}
