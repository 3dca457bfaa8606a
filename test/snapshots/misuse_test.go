package snapshots

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/bothy-dev/bothy"
)

func TestMisuse(t *testing.T) {
	t.Parallel()
	b, other := shared.newBox(t, bothy.SandboxCreate{}), shared.newBox(t, bothy.SandboxCreate{})
	api := b.s.Snapshots
	ctx, cancel := within(t)
	defer cancel()
	foreign := other.snapshot("")

	_, err := api.Resume(ctx, b.id, bothy.ResumeOptions{})
	refused(t, "resume a running one", err, bothy.CodeConflict)
	_, err = api.Rollback(ctx, b.id, foreign.ID)
	refused(t, "roll back to another's snapshot", err, bothy.CodeInvalid)
	_, err = api.Rollback(ctx, b.id, "snpnothing")
	refused(t, "roll back to nothing", err, bothy.CodeSnapshotNotFound)
	_, err = api.Resume(ctx, foreign.ID, bothy.ResumeOptions{})
	refused(t, "resume the snapshot of a running one", err, bothy.CodeConflict)
	_, err = api.Fork(ctx, b.id, bothy.ForkRequest{Count: -1})
	refused(t, "fork -1", err, bothy.CodeInvalid)
	_, err = api.Fork(ctx, b.id, bothy.ForkRequest{Count: 100000})
	refused(t, "fork 100000", err, bothy.CodeInvalid)
	_, err = b.s.Sandboxes.Create(ctx, bothy.SandboxCreate{SnapshotID: "../../etc"})
	refused(t, "create from a path", err, bothy.CodeSnapshotNotFound)
	for what, call := range map[string]func() error{
		"pause":    func() error { _, err := api.Pause(ctx, "sbxnothing", bothy.PauseOptions{}); return err },
		"resume":   func() error { _, err := api.Resume(ctx, "sbxnothing", bothy.ResumeOptions{}); return err },
		"snapshot": func() error { _, err := api.CreateSnapshot(ctx, "sbxnothing", bothy.SnapshotCreate{}); return err },
		"fork":     func() error { _, err := api.Fork(ctx, "sbxnothing", bothy.ForkRequest{}); return err },
	} {
		refused(t, what+" nothing", call(), bothy.CodeSandboxNotFound)
	}

	n := b.pause()
	_, err = api.Pause(ctx, b.id, bothy.PauseOptions{})
	refused(t, "pause twice", err, bothy.CodeSandboxPaused)
	_, err = api.CreateSnapshot(ctx, b.id, bothy.SnapshotCreate{})
	refused(t, "snapshot a paused one", err, bothy.CodeSandboxPaused)
	refused(t, "delete a snapshot in use", api.DeleteSnapshot(ctx, n.ID), bothy.CodeSnapshotInUse)
	b.resume(b.id)
	b.end()
	_, err = api.Fork(ctx, b.id, bothy.ForkRequest{Count: 1})
	refused(t, "fork one that has ended", err, bothy.CodeSandboxEnded)
	_, err = api.Pause(ctx, b.id, bothy.PauseOptions{})
	refused(t, "pause one that has ended", err, bothy.CodeSandboxEnded)
	_, err = api.Resume(ctx, b.id, bothy.ResumeOptions{})
	refused(t, "resume one that has ended", err, bothy.CodeSandboxEnded)
	other.sh("true")
}

func TestConcurrentPausesOfManySandboxes(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	const many = 20
	first := s.newBox(t, bothy.SandboxCreate{MemoryMB: 128})
	first.sh("echo mine >/tmp/file")
	boxes := append(first.fork(many-1), first)
	var wg sync.WaitGroup
	for _, b := range boxes {
		wg.Go(func() {
			if _, err := s.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{}); err != nil {
				t.Errorf("pause: %v", err)
			}
		})
	}
	wg.Wait()
	if err := s.Leftovers(""); err != nil && len(s.Processes("")) > 1 {
		t.Errorf("left: %v", err)
	}
	s.holds(t, len(boxes))
	for _, b := range boxes {
		wg.Go(func() {
			if _, err := s.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{}); err != nil {
				t.Errorf("resume: %v", err)
			}
		})
	}
	wg.Wait()
	for _, b := range boxes {
		if got := b.sh("cat /tmp/file"); got != "mine" {
			t.Errorf("%s has %q", b.id, got)
		}
	}
}

// TestFiftyConcurrentPauses pauses each of ten sandboxes five times concurrently.
func TestFiftyConcurrentPauses(t *testing.T) {
	t.Parallel()
	first := shared.newBox(t, bothy.SandboxCreate{MemoryMB: 128})
	boxes := append(first.fork(9), first)
	won := make([]int, len(boxes))
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i, b := range boxes {
		for range 5 {
			wg.Go(func() {
				_, err := b.s.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won[i]++
				} else {
					refused(t, "a pause that came late", err, bothy.CodeSandboxPaused)
				}
			})
		}
	}
	wg.Wait()
	for i, b := range boxes {
		if won[i] != 1 {
			t.Errorf("%d pauses of one sandbox succeeded", won[i])
		}
		b.resume(b.id)
		b.sh("true")
	}
}

// TestOnePauseSucceeds pauses the same sandbox many times concurrently.
func TestOnePauseSucceeds(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{})
	b.startCounter()
	before := b.counter()
	errs := make([]error, 5)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = b.s.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{}) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			refused(t, "the pause that came late", err, bothy.CodeSandboxPaused)
		}
	}
	if won != 1 {
		t.Errorf("%d pauses succeeded", won)
	}
	b.resume(b.id)
	b.continued(before)
}

// TestPauseUnderLoad pauses while commands are started. Each command succeeds or fails because the
// sandbox is paused.
func TestPauseUnderLoad(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{})
	b.startCounter()
	before := b.counter()
	stop := make(chan struct{})
	allowed := []bothy.Code{bothy.CodeSandboxPaused, bothy.CodeSandboxNotReady, bothy.CodeGuest}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				out, err := b.try("echo fine")
				var be *bothy.Error
				if err == nil && out != "fine" || err != nil && (!errors.As(err, &be) || !slices.Contains(allowed, be.Code)) {
					t.Errorf("a command returned %q, %v", out, err)
				}
			}
		})
	}
	func() {
		defer wg.Wait()
		defer close(stop)
		for range 3 {
			b.pause()
			b.resume(b.id)
			b.continued(before)
		}
	}()
	b.sh("true")
}
