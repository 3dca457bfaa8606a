package cgroup

import (
	"bufio"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const growerEnv = "BOTHY_TEST_GROWER"

// TestGrower is not a test but the process that TestThresholdsAreNotMissed measures: it holds as many
// pages as it is told to.
func TestGrower(t *testing.T) {
	if os.Getenv(growerEnv) == "" {
		t.Skip("run by TestThresholdsAreNotMissed")
	}
	page := os.Getpagesize()
	memory, err := unix.Mmap(-1, 0, 64<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	for held := 0; ; {
		var want uint32
		if err := binary.Read(os.Stdin, binary.LittleEndian, &want); err != nil {
			os.Exit(0)
		}
		for ; held < int(want); held++ {
			memory[held*page] = 1
		}
		if held > int(want) {
			if err := unix.Madvise(memory[int(want)*page:held*page], unix.MADV_DONTNEED); err != nil {
				t.Fatal(err)
			}
			held = int(want)
		}
		os.Stderr.Write([]byte{'.'})
	}
}

// grower starts it in the group, and returns a function that makes it hold a number of pages.
func grower(t *testing.T, g *Group) (hold func(pages int)) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestGrower$")
	cmd.Env = append(os.Environ(), growerEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	done := bufio.NewReader(out)
	return func(pages int) {
		if err := binary.Write(in, binary.LittleEndian, uint32(pages)); err != nil {
			t.Fatal(err)
		}
		if _, err := done.ReadByte(); err != nil {
			t.Fatal(err)
		}
	}
}

// Usage that hovers about a threshold and then rises is noticed although the kernel misses some of the
// times at which it crosses that threshold.
func TestThresholdsAreNotMissed(t *testing.T) {
	const limit = 32 << 20
	g := newGroup(t, Limits{MemoryBytes: 8 * limit})
	if g.p.v2 != "" {
		t.Skip("version 2 of cgroups has no thresholds: usage is read at intervals")
	}
	hold := grower(t, g)
	hold(1)
	line := thresholds(limit)[0]
	one, err := g.notifyAbove(line)
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	all, err := g.notifyAbove(thresholds(limit)...)
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	page := os.Getpagesize()
	tries, missed := 0, 0
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end) && missed < 2; {
		hold(1)
		middle := 1 + int(line-g.usage())/page
		for range 1 + rand.IntN(4) {
			hold(max(1, middle+rand.IntN(600)-300))
		}
		signalled(t, one)
		signalled(t, all)
		if g.usage() > line || signalled(t, one) || signalled(t, all) {
			continue
		}
		// WatchMemory would now wait for the kernel.
		tries++
		hold(middle + limit/page/2)
		if !signalled(t, one) {
			missed++
		}
		if !signalled(t, all) {
			t.Fatalf("try %d: usage rose from %d to %d bytes, and there was no notification", tries, line, g.usage())
		}
	}
	t.Logf("with a single threshold the kernel missed %d of %d", missed, tries)
	if tries == 0 {
		t.Error("usage was never just below the threshold")
	}
}

// signalled reports whether an event file has an event, and clears it.
func signalled(t *testing.T, f *os.File) bool {
	t.Helper()
	rc, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var count [8]byte
	cerr := rc.Control(func(fd uintptr) { _, err = unix.Read(int(fd), count[:]) })
	if cerr != nil || err != nil && !errors.Is(err, unix.EAGAIN) {
		t.Fatal(cerr, err)
	}
	return err == nil
}
