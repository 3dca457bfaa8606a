package gvisor_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/enginetest"
	"github.com/bothy-dev/bothy/engine/gvisor"
)

// TestBootAffinity pins booting machines, however many processors this host has. It checks which
// processors a machine's threads may use before process 1 listens and afterwards, including threads
// that were started in between.
func TestBootAffinity(t *testing.T) {
	all := pinning(t)
	dir, parent := newPlace(t)
	m := startPinned(t, newEngine(t, dir, parent))
	m.(bothy.Announcer).Announced(t.Context())
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		others, n := threads(t, m, all.Count())
		if len(others) == 0 && n >= 3 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not all of %d threads have all processors after the boot: %v", n, others)
		}
	}
}

// TestBootAffinityEndsWithItsServer adopts a machine whose previous server died before releasing it.
func TestBootAffinityEndsWithItsServer(t *testing.T) {
	all := pinning(t)
	dir, parent := newPlace(t)
	m := startPinned(t, newEngine(t, dir, parent))
	found, err := newEngine(t, dir, parent).Adopt(t.Context(), m.ID(), m.State())
	if err != nil {
		t.Fatal(err)
	}
	if others, n := threads(t, found, all.Count()); len(others) > 0 || n < 3 {
		t.Errorf("not all of %d threads have all processors: %v", n, others)
	}
}

// pinning enables the pinning of booting machines, and returns all processors.
func pinning(t *testing.T) (all unix.CPUSet) {
	t.Helper()
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	if all.Count() < 2 {
		t.Skip("there is one processor")
	}
	t.Cleanup(gvisor.SetBootCPUs(all))
	return all
}

// startPinned starts a machine whose threads are all pinned to one processor.
func startPinned(t *testing.T, e bothy.Engine) bothy.Machine {
	t.Helper()
	m, err := e.Start(t.Context(), spec("affinity"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Destroy(context.Background()) })
	if others, n := threads(t, m, 1); len(others) > 0 || n < 3 {
		t.Errorf("not all of %d threads are pinned to one processor: %v", n, others)
	}
	return m
}

// threads returns the threads of a machine that do not have this number of processors, and the number
// of all threads.
func threads(t *testing.T, m bothy.Machine, want int) (others []string, count int) {
	t.Helper()
	for _, pid := range enginetest.Family(sentryOf(t, m)) {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		for _, task := range tasks {
			var has unix.CPUSet
			id, _ := strconv.Atoi(filepath.Base(task))
			if unix.SchedGetaffinity(id, &has) != nil {
				continue // it has ended
			}
			count++
			if has.Count() != want {
				others = append(others, fmt.Sprintf("thread %d of %d has %d", id, pid, has.Count()))
			}
		}
	}
	return others, count
}
