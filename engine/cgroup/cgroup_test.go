package cgroup

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func newGroup(t *testing.T, l Limits) *Group {
	t.Helper()
	p, err := NewParent(fmt.Sprintf("bothy-test-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	g, err := p.Create("g", l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		g.Kill()
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
		p.Remove()
	})
	return g
}

// runIn runs a shell command in the group.
func runIn(t *testing.T, g *Group, script string) error {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", `read x; `+script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	in.Close()
	return cmd.Wait()
}

func TestMemoryCeilingKillsAndIsCounted(t *testing.T) {
	g := newGroup(t, Limits{CPU: 1, MemoryBytes: 32 << 20, PIDs: 64})
	if err := runIn(t, g, "exec head -c 200000000 /dev/zero | tail >/dev/null"); err == nil && g.OOMKills() == 0 {
		t.Fatal("a process used 200 MB under a ceiling of 32 MB")
	}
	if n := g.OOMKills(); n == 0 {
		t.Fatal("the kill was not counted")
	}
}

func TestWatchMemoryReportsBeforeTheCeiling(t *testing.T) {
	g := newGroup(t, Limits{MemoryBytes: 256 << 20})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	over, below := make(chan struct{}), make(chan struct{})
	before := int64(0)
	go g.WatchMemory(ctx, 64<<20, func(used, limit int64) {
		switch {
		case before <= limit && used > limit:
			close(over)
			g.Kill()
		case before > limit && used <= limit:
			close(below)
		}
		before = used
	})
	runIn(t, g, "exec tail /dev/zero")
	for what, told := range map[string]chan struct{}{"the limit was exceeded": over, "the memory was freed": below} {
		select {
		case <-told:
		case <-ctx.Done():
			t.Fatalf("there was no notification when %s", what)
		}
	}
}

func TestFreezeAndCPUTime(t *testing.T) {
	g := newGroup(t, Limits{CPU: 0.5})
	done := make(chan error, 1)
	go func() { done <- runIn(t, g, "i=0; while [ $i -lt 100000000 ]; do i=$((i+1)); done") }()
	for {
		if used, err := g.CPUSeconds(); err == nil && used > 0.01 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := g.SetFrozen(true); err != nil {
		t.Fatal(err)
	}
	before, _ := g.CPUSeconds()
	time.Sleep(20 * time.Millisecond)
	after, _ := g.CPUSeconds()
	if after != before {
		t.Fatalf("a frozen group used %v s of CPU", after-before)
	}
	if err := g.SetFrozen(false); err != nil {
		t.Fatal(err)
	}
	g.Kill()
	<-done
}

// A host that ends what is left of a sandbox may find that its group was removed meanwhile.
func TestThawingARemovedGroup(t *testing.T) {
	g := newGroup(t, Limits{PIDs: 64})
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := g.SetFrozen(false); err != nil {
		t.Error(err)
	}
	if err := g.SetFrozen(true); err == nil {
		t.Error("a removed group was frozen")
	}
}

func TestEndWaitsForAll(t *testing.T) {
	g := newGroup(t, Limits{PIDs: 64})
	done := make(chan error, 1)
	go func() { done <- runIn(t, g, "sleep 1000 & sleep 1000 & wait") }()
	for {
		if pids, err := g.Processes(); err != nil {
			t.Fatal(err)
		} else if len(pids) == 3 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := g.End(); err != nil {
		t.Fatal(err)
	}
	if pids, err := g.Processes(); err != nil || len(pids) > 0 {
		t.Fatalf("%v, %v are left", pids, err)
	}
	<-done
}

// The id of an ended process in the list may already belong to another process.
func TestKillSparesWhoGotANumberAfterwards(t *testing.T) {
	other := exec.Command("sleep", "1000")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	looks := 0
	list := func() ([]int, error) {
		if looks++; looks == 1 {
			return []int{other.Process.Pid}, nil
		}
		return nil, nil
	}
	held, err := hold(list)
	if err != nil || len(held) > 0 || looks != 2 {
		t.Fatalf("%v, %v would be killed after %d reads", held, err, looks)
	}
	always := func() ([]int, error) { return []int{other.Process.Pid, os.Getpid()}, nil }
	held, err = hold(always)
	if err != nil || len(held) != 1 || held[0].PID != other.Process.Pid {
		t.Fatalf("%v, %v would be killed", held, err)
	}
	held[0].Close()
}

// Another process may remove a group at any moment, even while its processes are read.
func TestRemovedGroupIsGone(t *testing.T) {
	g := newGroup(t, Limits{})
	f, err := os.Open(filepath.Join(g.p.all[0], g.name, "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := g.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(make([]byte, 100)); !isGone(err) {
		t.Errorf("reading a file that was opened before: %v", err)
	}
	if pids, err := g.Processes(); err != nil || len(pids) > 0 {
		t.Errorf("a removed group has %v, %v", pids, err)
	}
}
