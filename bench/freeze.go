package bench

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy"
)

//go:embed hold.py
var holdProgram string

// HoldArgs is a Python program that has written to so many megabytes of memory, prints "ready",
// and then reports gaps; see Gap.
func HoldArgs(mb int) []string {
	return []string{"python3", "-c", holdProgram, strconv.Itoa(mb)}
}

// A Holder is a running program of HoldArgs.
type Holder interface {
	// Signal sends the program a signal, and Line waits for its next line.
	Signal(ctx context.Context, s syscall.Signal) error
	Line(ctx context.Context) (string, error)
}

// gapMargin is how long the program watches the clock before and after.
const gapMargin = 50 * time.Millisecond

// Gap makes the program read its clock continuously while f runs. It returns the largest step of
// the clock, in milliseconds: how long the program was frozen.
func Gap(ctx context.Context, h Holder, f func() error) (float64, error) {
	if err := h.Signal(ctx, syscall.SIGUSR1); err != nil {
		return 0, err
	}
	if err := Expect(ctx, h, "watching"); err != nil {
		return 0, err
	}
	time.Sleep(gapMargin)
	failed := f()
	time.Sleep(gapMargin)
	if err := errors.Join(failed, h.Signal(ctx, syscall.SIGUSR2)); err != nil {
		return 0, err
	}
	line, err := h.Line(ctx)
	if err != nil {
		return 0, err
	}
	var ms float64
	_, err = fmt.Sscanf(line, "gap %g", &ms)
	return ms, err
}

// Expect waits for the program's next line, which must be this one.
func Expect(ctx context.Context, h Holder, want string) error {
	got, err := h.Line(ctx)
	if err == nil && got != want {
		err = fmt.Errorf("the program says %q instead of %q", got, want)
	}
	return err
}

// Held is a sandbox that runs the program of HoldArgs.
type Held struct {
	Target
	ID  string
	pid int

	seen  int64
	lines []string
}

// Hold makes a sandbox that holds so many megabytes, and returns how to end it.
func (t Target) Hold(ctx context.Context, mb int) (*Held, func(), error) {
	sb, end, err := t.Create(ctx, bothy.SandboxCreate{MemoryMB: mb + 512})
	if err != nil {
		return nil, nil, err
	}
	h := &Held{Target: t, ID: sb.ID}
	r, err := t.Client.Exec.Exec(ctx, sb.ID, bothy.ExecRequest{Command: bothy.Command{Args: HoldArgs(mb)}, Background: true})
	if err == nil {
		h.pid = r.PID
		err = Expect(ctx, h, "ready")
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	return h, end, nil
}

// Signal sends the program a signal.
func (h *Held) Signal(ctx context.Context, s syscall.Signal) error {
	return h.Client.Exec.Signal(ctx, h.ID, h.pid, int(s))
}

// Line reads the next line of the program's output.
func (h *Held) Line(ctx context.Context) (string, error) {
	var text strings.Builder
	for len(h.lines) == 0 {
		err := h.Client.Exec.Output(ctx, h.ID, h.pid, h.seen, func(e bothy.ExecEvent) error {
			text.WriteString(e.Data)
			if strings.HasSuffix(text.String(), "\n") {
				return io.EOF
			}
			return nil
		})
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		if text.Len() == 0 {
			return "", errors.New("the program has ended")
		}
		if s := text.String(); strings.HasSuffix(s, "\n") {
			h.seen += int64(len(s))
			h.lines = strings.Split(strings.TrimSuffix(s, "\n"), "\n")
		}
	}
	line := h.lines[0]
	h.lines = h.lines[1:]
	return line, nil
}

// Answer runs a command in every sandbox at once, and returns when all have answered.
func (t Target) Answer(ctx context.Context, ids ...string) error {
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() { _, errs[i] = t.Run(ctx, id, True) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Names of the measures of what was paused, copied or rolled back.
const (
	Resume             = "resume"
	Pause              = "pause"
	LiveSnapshotFreeze = "live_snapshot"
	LiveSnapshot       = "live_snapshot_call"
	QuietGap           = "quiet_gap"
	Rollback           = "rollback"
)

// ForkOf names the measure of n copies.
func ForkOf(n int) string { return "fork" + strconv.Itoa(n) }

// PauseAndResume is a subject: from the request to resume a paused sandbox until a command has
// answered.
func PauseAndResume(h *Held) Subject {
	return Subject{Name: "bothy", Once: func(ctx context.Context, record Record) error {
		begun := time.Now()
		if _, err := h.Client.Snapshots.Pause(ctx, h.ID, bothy.PauseOptions{}); err != nil {
			return err
		}
		record(Pause, Since(begun))
		begun = time.Now()
		if _, err := h.Client.Snapshots.Resume(ctx, h.ID, bothy.ResumeOptions{}); err != nil {
			return err
		}
		err := h.Answer(ctx, h.ID)
		record(Resume, Since(begun))
		return err
	}}
}

// TakeLive is a subject: how long a live snapshot freezes a program, how long the
// request takes, and for comparison the largest gap that the program sees in the same time
// without a snapshot.
func TakeLive(h *Held) Subject {
	return Subject{Name: "bothy", Once: func(ctx context.Context, record Record) error {
		var n *bothy.Snapshot
		var took time.Duration
		gap, err := Gap(ctx, h, func() (err error) {
			begun := time.Now()
			n, err = h.Client.Snapshots.CreateSnapshot(ctx, h.ID, bothy.SnapshotCreate{})
			took = time.Since(begun)
			return err
		})
		if err != nil {
			return err
		}
		record(LiveSnapshotFreeze, gap)
		record(LiveSnapshot, float64(took.Microseconds())/1000)
		if err := h.Client.Snapshots.DeleteSnapshot(ctx, n.ID); err != nil {
			return err
		}
		gap, err = Gap(ctx, h, func() error { time.Sleep(took); return nil })
		record(QuietGap, gap)
		return err
	}}
}

// ForkAll is a subject: from the request for n copies until a command has answered in each.
func ForkAll(h *Held, n int) Subject {
	return Subject{Name: "bothy", Once: func(ctx context.Context, record Record) error {
		begun := time.Now()
		copies, err := h.Client.Snapshots.Fork(ctx, h.ID, bothy.ForkRequest{Count: n})
		if err != nil {
			return err
		}
		var ids []string
		for _, c := range copies {
			ids = append(ids, c.ID)
		}
		err = h.Answer(ctx, ids...)
		record(ForkOf(n), Since(begun))
		for _, id := range ids {
			err = errors.Join(err, h.Client.Sandboxes.Terminate(ctx, id))
		}
		return err
	}}
}

// RollBack is a subject: from the request to roll back to an earlier snapshot until a command
// has answered. The state before it is kept, and deleted afterwards.
func RollBack(h *Held, to *bothy.Snapshot) Subject {
	return Subject{Name: "bothy", Once: func(ctx context.Context, record Record) error {
		begun := time.Now()
		if _, err := h.Client.Snapshots.Rollback(ctx, h.ID, to.ID); err != nil {
			return err
		}
		err := h.Answer(ctx, h.ID)
		record(Rollback, Since(begun))
		page, e := h.Client.Snapshots.Snapshots(ctx, bothy.SnapshotFilter{SandboxID: h.ID})
		err = errors.Join(err, e)
		for _, n := range page.Items {
			if n.ID != to.ID {
				err = errors.Join(err, h.Client.Snapshots.DeleteSnapshot(ctx, n.ID))
			}
		}
		return err
	}}
}
