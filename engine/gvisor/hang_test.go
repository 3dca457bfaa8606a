package gvisor_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/gvisor"
)

// soon is the limit for operations that must not wait for a hung kernel.
const soon = time.Minute

// within fails the test if f takes too long.
func within(t *testing.T, what string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(soon):
		t.Fatalf("%s waits for a hung kernel", what)
		return nil
	}
}

// startHung starts a machine and stops its sentry.
func startHung(t *testing.T, controlTime time.Duration) bothy.Machine {
	t.Helper()
	dir, parent := newPlace(t)
	e := newEngine(t, dir, parent)
	e.(*gvisor.Engine).SetControlTime(controlTime)
	m, err := e.Start(t.Context(), spec("hangs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Destroy(context.Background()) })
	m.(bothy.Announcer).Announced(t.Context())
	if err := unix.Kill(sentryOf(t, m), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestHungKernelIsGivenUp takes snapshots of a machine whose sentry is stopped and later continued.
func TestHungKernelIsGivenUp(t *testing.T) {
	m := startHung(t, time.Second)
	memory := t.TempDir()
	for name, o := range map[string]bothy.SnapshotOptions{
		"memory": {MemoryDir: memory}, "files": {FilesTar: filepath.Join(t.TempDir(), "files.tar")},
	} {
		err := within(t, "a snapshot of "+name, func() error { return m.Snapshot(t.Context(), o) })
		if be := bothy.AsError(err); be.Code != bothy.CodeEngine || be.Hint == "" {
			t.Errorf("a snapshot of %s fails with %v", name, err)
		}
	}
	if err := within(t, "thaw", func() error { return m.Thaw(t.Context()) }); bothy.ErrorCode(err) != bothy.CodeEngine {
		t.Errorf("thaw fails with %v", err)
	}
	if err := within(t, "destroy", func() error { return m.Destroy(t.Context()) }); err != nil {
		t.Error(err)
	}
	if x := m.Exit(); x.Reason != bothy.EndTerminated {
		t.Errorf("the machine ended with %+v", x)
	}
}

// TestKernelThatHangsHalfwayIsGivenUp stops a sentry once it has paused its kernel. How long it may
// take depends on how much there is to write, and how long it may do nothing does not.
func TestKernelThatHangsHalfwayIsGivenUp(t *testing.T) {
	dir, parent := newPlace(t)
	e := newEngine(t, dir, parent)
	e.(*gvisor.Engine).SetControlTime(2 * time.Second)
	large := spec("hangs")
	large.Limits.DiskMB = 4096
	m, err := e.Start(t.Context(), large)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Destroy(context.Background()) })
	m.(bothy.Announcer).Announced(t.Context())
	o := bothy.SnapshotOptions{FilesTar: filepath.Join(t.TempDir(), "files.tar"), OnPaused: func() {
		if err := unix.Kill(sentryOf(t, m), unix.SIGSTOP); err != nil {
			t.Error(err)
		}
	}}
	err = within(t, "a snapshot", func() error { return m.Snapshot(t.Context(), o) })
	if be := bothy.AsError(err); be.Code != bothy.CodeEngine || be.Hint == "" {
		t.Errorf("the snapshot fails with %v", err)
	}
	if err := within(t, "destroy", func() error { return m.Destroy(t.Context()) }); err != nil {
		t.Error(err)
	}
}

// TestDestroyEndsAPendingSnapshot destroys a machine while its snapshot waits for the kernel.
func TestDestroyEndsAPendingSnapshot(t *testing.T) {
	m := startHung(t, time.Hour)
	snapshot := make(chan error, 1)
	waits := make(chan struct{})
	go func() {
		close(waits)
		snapshot <- m.Snapshot(t.Context(), bothy.SnapshotOptions{MemoryDir: t.TempDir()})
	}()
	<-waits
	for range 3 { // before and while it waits
		within(t, "stats", func() error { m.State(); _, err := m.Stats(t.Context()); return err })
		time.Sleep(50 * time.Millisecond)
	}
	if err := within(t, "destroy", func() error { return m.Destroy(t.Context()) }); err != nil {
		t.Error(err)
	}
	if err := within(t, "the snapshot", func() error { return <-snapshot }); err == nil {
		t.Error("a snapshot of a destroyed machine succeeded")
	}
}
