package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// watchFrom is the part of the limit below which memory is not watched.
	watchFrom = 0.6
	// fastest is how quickly a program is expected to fill memory, in bytes per second: the next
	// check comes before the limit can be reached at that rate.
	fastest  = 2 << 30
	nearPoll = 5 * time.Millisecond
	midPoll  = 100 * time.Millisecond
	farPoll  = 250 * time.Millisecond
)

// WatchMemory calls fn repeatedly while the group uses more memory than watchFrom of the limit,
// and once when it no longer does. Below that threshold it costs nothing with v1, where the
// kernel notifies when one is crossed, and four reads a second with v2, where it does not. It
// returns when ctx ends or the group is gone.
//
// The kernel compares usage with a threshold only after every 128 or so pages, and notifies if the
// result is another than before. So it misses that usage fell below the threshold for a moment, and
// then also that it rises again. That is why there are several thresholds: usage that went on
// rising unnoticed crosses the next.
func (g *Group) WatchMemory(ctx context.Context, limit int64, fn func(used, limit int64)) error {
	line := thresholds(limit)[0]
	var crossed *os.File
	if g.p.v2 == "" {
		f, err := g.notifyAbove(thresholds(limit)...)
		if err != nil {
			return err
		}
		defer f.Close()
		defer context.AfterFunc(ctx, func() { f.Close() })()
		crossed = f
	}
	var count [8]byte
	for near := false; ; {
		g.untilThawed(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		used, err := g.MemoryUsed()
		if err != nil {
			return err
		}
		if near || used > line {
			near = used > line
			fn(used, limit)
		}
		// The kernel compares the threshold with all pages, including the page cache, so we may
		// wait only while that count is below it.
		switch {
		case used > line || g.usage() > line:
			err = sleep(ctx, untilReached(limit-used))
		case crossed == nil: // v2
			err = sleep(ctx, farPoll)
		default:
			_, err = crossed.Read(count[:])
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, os.ErrClosed) {
			return err
		}
	}
}

// usage is all the memory charged to the group.
func (g *Group) usage() int64 {
	file := "memory.usage_in_bytes"
	if g.p.v2 != "" {
		file = "memory.current"
	}
	s, _ := g.read("memory", file)
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func untilReached(left int64) time.Duration {
	d := time.Duration(float64(left) / fastest * float64(time.Second))
	return min(max(d, nearPoll), midPoll)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func thresholds(limit int64) []int64 {
	part := func(x float64) int64 { return int64(float64(limit) * x) }
	return []int64{part(watchFrom), part(0.75), part(0.9)}
}

// notifyAbove returns an event file that becomes readable when the kernel finds that the usage has
// crossed one of the thresholds, in either direction.
func (g *Group) notifyAbove(thresholds ...int64) (*os.File, error) {
	efd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	ev := os.NewFile(uintptr(efd), "memory-event")
	usage, err := os.Open(filepath.Join(g.dir("memory"), "memory.usage_in_bytes"))
	if err != nil {
		ev.Close()
		return nil, err
	}
	defer usage.Close()
	for _, t := range thresholds {
		arg := fmt.Sprintf("%d %d %s", efd, usage.Fd(), strconv.FormatInt(t, 10))
		if err := g.write("memory", "cgroup.event_control", arg); err != nil {
			ev.Close()
			return nil, err
		}
	}
	return ev, nil
}
