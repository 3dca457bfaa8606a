package snapshots

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bothy-dev/bothy"
)

// TestPauseIsAtomic makes every step of a pause fail, and then kills the server at it.
func TestPauseIsAtomic(t *testing.T) {
	steps := []string{
		"lifecycle.move.pausing", "lifecycle.freeze", "lifecycle.frozen", "blob.commit",
		"blob.synced", "blob.renamed", "lifecycle.sealed", "lifecycle.move.paused",
	}
	for _, step := range steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := ownServer(t, step+"=error")
			b := s.newBox(t, bothy.SandboxCreate{})
			b.startCounter()
			before := b.counter()
			ctx, cancel := within(t)
			defer cancel()
			if n, err := s.Snapshots.Pause(ctx, b.id, bothy.PauseOptions{}); err == nil {
				t.Fatalf("the pause did not fail: %+v", n)
			}
			b.is(bothy.StateRunning)
			b.continued(before)
			s.holds(t, 0)

			s.restart(t, step+"=kill")
			b.continued(before)
			if _, err := s.Snapshots.Pause(ctx, b.id, bothy.PauseOptions{}); err == nil {
				t.Fatal("the pause did not fail")
			}
			s.dies(t)
			s.restart(t)
			s.wantAtomic(t, b)
			b.continued(before)
			b.pause()
			b.resume(b.id)
			b.continued(before)
		})
	}
}

// wantAtomic checks that a sandbox is running or paused, and resumes it.
func (s *server) wantAtomic(t *testing.T, b *box) {
	t.Helper()
	switch state := b.get().State; state {
	case bothy.StateRunning:
		s.holds(t, 0)
	case bothy.StatePaused:
		s.holds(t, 1)
		if err := s.Leftovers(b.id); err != nil {
			t.Errorf("files are left: %v", err)
		}
		b.resume(b.id)
	default:
		t.Fatalf("the sandbox is %s", state)
	}
}

// holds checks the number of snapshots, on disk and in the list.
func (s *server) holds(t *testing.T, want int) {
	t.Helper()
	ctx, cancel := within(t)
	defer cancel()
	page, err := s.Snapshots.Snapshots(ctx, bothy.SnapshotFilter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, n := range page.Items {
		listed[n.ID] = true
	}
	entries, err := os.ReadDir(filepath.Join(s.Home, "snapshots"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	onDisk := map[string]bool{}
	for _, e := range entries {
		onDisk[e.Name()] = true
	}
	if len(listed) != want || !maps.Equal(listed, onDisk) {
		t.Errorf("want %d snapshots; listed %v, on disk %v", want, slices.Sorted(maps.Keys(listed)), slices.Sorted(maps.Keys(onDisk)))
	}
}

// TestLiveSnapshotIsAtomic does the same to a live snapshot.
func TestLiveSnapshotIsAtomic(t *testing.T) {
	for _, step := range []string{"lifecycle.freeze", "blob.commit", "blob.renamed", "lifecycle.sealed"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := ownServer(t, step+"=kill")
			b := s.newBox(t, bothy.SandboxCreate{})
			b.startCounter()
			before := b.counter()
			ctx, cancel := within(t)
			defer cancel()
			if _, err := s.Snapshots.CreateSnapshot(ctx, b.id, bothy.SnapshotCreate{}); err == nil {
				t.Fatal("the snapshot did not fail")
			}
			s.dies(t)
			s.restart(t)
			b.is(bothy.StateRunning)
			b.continued(before)
			page, err := s.Snapshots.Snapshots(ctx, bothy.SnapshotFilter{})
			if err != nil {
				t.Fatal(err)
			}
			s.holds(t, len(page.Items))
			for _, n := range page.Items {
				s.newBox(t, bothy.SandboxCreate{SnapshotID: n.ID}).continued(before)
			}
		})
	}
}

// TestResumeIsAtomic kills the server during a resume.
func TestResumeIsAtomic(t *testing.T) {
	for _, step := range []string{"lifecycle.move.resuming", "lifecycle.started", "lifecycle.adopted"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			s := ownServer(t)
			b := s.newBox(t, bothy.SandboxCreate{})
			b.startCounter()
			before := b.counter()
			b.pause()
			s.restart(t, step+"=kill")
			ctx, cancel := within(t)
			defer cancel()
			if _, err := s.Snapshots.Resume(ctx, b.id, bothy.ResumeOptions{}); err == nil {
				t.Fatal("the resume did not fail")
			}
			s.dies(t)
			s.restart(t)
			b.is(bothy.StatePaused)
			s.wantAtomic(t, b)
			b.continued(before)
		})
	}
}

// TestFullDisk puts snapshots on a disk that is too small for the files or for the memory.
func TestFullDisk(t *testing.T) {
	for _, size := range []int{1, 12} {
		t.Run(fmt.Sprintf("%dMB", size), func(t *testing.T) {
			t.Parallel()
			s := stoppedServer(t)
			disk := filepath.Join(s.Home, "snapshots")
			if err := os.MkdirAll(disk, 0o711); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=711", size)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := errors.Join(s.Stop(), syscall.Unmount(disk, 0)); err != nil {
					t.Error(err)
				}
			})
			if err := os.Chmod(s.Home, 0o711); err != nil {
				t.Fatal(err)
			}
			s.restart(t)
			b := s.newBox(t, bothy.SandboxCreate{})
			b.startCounter()
			b.sh("head -c 2M /dev/urandom >/workspace/data")
			before := b.counter()
			ctx, cancel := within(t)
			defer cancel()
			_, err := s.Snapshots.Pause(ctx, b.id, bothy.PauseOptions{})
			refused(t, "pause on a full disk", err, bothy.CodeDiskFull)
			_, err = s.Snapshots.CreateSnapshot(ctx, b.id, bothy.SnapshotCreate{})
			refused(t, "snapshot on a full disk", err, bothy.CodeDiskFull)
			if size == 1 {
				_, err = s.Snapshots.Fork(ctx, b.id, bothy.ForkRequest{Count: 1})
				refused(t, "fork on a full disk", err, bothy.CodeDiskFull)
			}
			b.is(bothy.StateRunning)
			b.continued(before)
			s.holds(t, 0)
			if err := syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT, "size=512m,mode=711"); err != nil {
				t.Fatal(err)
			}
			b.pause()
			b.resume(b.id)
			b.continued(before)
			b.end()
		})
	}
}

// end terminates the sandbox.
func (b *box) end() {
	b.Helper()
	ctx, cancel := within(b.T)
	defer cancel()
	if err := b.s.Sandboxes.Terminate(ctx, b.id); err != nil {
		b.Fatal(err)
	}
}

func TestServerLogsHoldNoKeys(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	b := s.newBox(t, bothy.SandboxCreate{})
	b.pause()
	b.resume(b.id)
	for _, line := range s.Log() {
		if strings.Contains(line, s.Key) {
			t.Errorf("the log contains the key: %s", line)
		}
	}
}

// TestDeletionIsAtomic kills the server between deleting a snapshot's files and its record.
func TestDeletionIsAtomic(t *testing.T) {
	t.Parallel()
	s := ownServer(t, "lifecycle.removed=kill")
	b := s.newBox(t, bothy.SandboxCreate{})
	n := b.snapshot("")
	ctx, cancel := within(t)
	defer cancel()
	if err := s.Snapshots.DeleteSnapshot(ctx, n.ID); err == nil {
		t.Fatal("the deletion did not fail")
	}
	s.dies(t)
	s.restart(t)
	s.holds(t, 0)
	b.sh("true")
}

// TestImportIsAtomic kills the server before it has recorded an imported snapshot, whose sandbox is
// unknown to the server.
func TestImportIsAtomic(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{})
	b.startCounter()
	before := b.counter()
	var archive bytes.Buffer
	ctx, cancel := within(t)
	defer cancel()
	if err := shared.Mover.ExportSnapshot(ctx, b.snapshot("").ID, "", &archive); err != nil {
		t.Fatal(err)
	}
	s := stoppedServer(t)
	s.NoPool = true
	s.Settings = fmt.Sprintf("snapshots: {trusted_keys: [%s]}\n", shared.archiveKey(t))
	for step, want := range map[string]int{"blob.commit": 0, "blob.renamed": 1} {
		s.restart(t, step+"=kill")
		if _, err := s.Mover.ImportSnapshot(ctx, "", "", bytes.NewReader(archive.Bytes())); err == nil {
			t.Fatal("the import did not fail")
		}
		s.dies(t)
		s.restart(t)
		page, err := s.Snapshots.Snapshots(ctx, bothy.SnapshotFilter{})
		if err != nil {
			t.Fatal(err)
		}
		s.holds(t, want)
		for _, n := range page.Items {
			s.newBox(t, bothy.SandboxCreate{SnapshotID: n.ID}).continued(before)
			if err := s.Snapshots.DeleteSnapshot(ctx, n.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
}
