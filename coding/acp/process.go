package acp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

// Process is an agent that was started in a sandbox, as a background command. The connection may
// be lost and the server restarted: the output continues where it stopped. While no messages are
// exchanged, its sandbox is paused.
type Process struct {
	Exec      bothy.ExecService
	Snapshots bothy.SnapshotService
	Sandbox   string
	PID       int
	// Stderr receives the agent's standard error.
	Stderr io.Writer
	// Patience is how long a server may be unavailable.
	Patience time.Duration
	// Idle is how long the connection must be silent before the sandbox is paused, 0 for never,
	// and Busy reports whether an answer is awaited.
	Idle time.Duration
	Busy func() bool
	// Note is called with messages for the user.
	Note func(format string, args ...any)

	offset int64
	tail   tail

	mu     sync.Mutex
	timer  *time.Timer
	paused chan struct{} // closed when the sandbox is resumed; nil while it runs
}

// Ended means that the agent has ended, and why.
type Ended struct {
	Code   int
	OOM    bool
	Stderr string // the last line of it
}

func (e *Ended) Error() string {
	text := fmt.Sprintf("the agent ended with exit code %d", e.Code)
	if e.OOM {
		text = "the agent was killed because the sandbox was out of memory: give it more with --memory"
	}
	if e.Stderr != "" {
		text += ": " + e.Stderr
	}
	return text
}

// Send implements Agent. It resumes the sandbox.
func (p *Process) Send(ctx context.Context, b []byte) error {
	p.touch()
	const most = 1 << 20
	for len(b) > 0 {
		n := min(len(b), most)
		err := p.retry(ctx, notTaken, func() error {
			if err := p.Wake(ctx); err != nil {
				return err
			}
			return p.Exec.Stdin(ctx, p.Sandbox, p.PID, b[:n], false)
		})
		if err != nil {
			return fmt.Errorf("cannot reach the agent: %w", err)
		}
		b = b[n:]
	}
	return nil
}

// Follow implements Agent.
func (p *Process) Follow(ctx context.Context, out func([]byte) error) error {
	p.touch()
	defer p.still()
	var ended *Ended
	err := p.retry(ctx, away, func() error {
		if err := p.awake(ctx); err != nil {
			return err
		}
		before := p.offset
		err := p.Exec.Output(ctx, p.Sandbox, p.PID, p.offset, func(e bothy.ExecEvent) error {
			if e.IsFinal {
				ended = &Ended{Code: e.ExitCode, OOM: e.OOMKilled, Stderr: p.tail.line()}
			}
			return p.take(e, out)
		})
		switch {
		case ended != nil:
			return ended
		case p.Asleep():
			return errAgain
		case err != nil && p.offset > before:
			return errors.Join(errMoved, err)
		}
		return err
	})
	return err
}

// take passes on a piece of output.
func (p *Process) take(e bothy.ExecEvent, out func([]byte) error) error {
	data, err := e.Bytes()
	if err != nil {
		return final{err}
	}
	if len(data) == 0 {
		return nil
	}
	if e.Offset != p.offset {
		return final{fmt.Errorf("%d bytes of what the agent said were lost", e.Offset-p.offset)}
	}
	p.offset += int64(len(data))
	p.touch()
	if e.Stream == "stderr" {
		p.tail.add(data)
		_, _ = p.Stderr.Write(data)
		return nil
	}
	if err := out(data); err != nil {
		return final{err}
	}
	return nil
}

// final is an error that retrying does not help.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

var (
	errAgain = errors.New("once more")
	errMoved = errors.New("the connection was lost")
)

// retry retries for as long as that may help.
func (p *Process) retry(ctx context.Context, again func(error) bool, do func() error) error {
	wait, since := 100*time.Millisecond, time.Now()
	for {
		err := do()
		var ended *Ended
		var last final
		switch {
		case err == nil || ctx.Err() != nil || errors.As(err, &ended) || errors.As(err, &last):
			return err
		case err == errAgain:
			continue
		case errors.Is(err, errMoved):
			wait, since = 100*time.Millisecond, time.Now()
		case !again(err) || time.Since(since) > p.Patience:
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait):
		}
		wait = min(2*wait, 5*time.Second)
	}
}

// away reports whether the server may answer another time.
func away(err error) bool {
	switch bothy.ErrorCode(err) {
	case "", client.CodeUnreachable, bothy.CodeGuest, bothy.CodeInternal, bothy.CodeTimeout:
		return true
	}
	return notTaken(err)
}

// notTaken reports whether a request that was not executed can be retried. One that may have
// been executed is not sent again: the agent would read it twice.
func notTaken(err error) bool {
	switch bothy.ErrorCode(err) {
	case bothy.CodeShuttingDown, bothy.CodeSandboxNotReady, bothy.CodeRateLimited, bothy.CodeCapacity:
		return true
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// touch postpones the pause.
func (p *Process) touch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Idle <= 0 {
		return
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(p.Idle, p.rest)
	} else {
		p.timer.Reset(p.Idle)
	}
}

func (p *Process) still() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.Idle = 0
}

// rest pauses the sandbox when no request waits for the agent.
func (p *Process) rest() {
	if p.Busy() {
		p.touch()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused != nil || p.Idle <= 0 {
		return
	}
	p.paused = make(chan struct{})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := p.Snapshots.Pause(ctx, p.Sandbox, bothy.PauseOptions{}); err != nil {
		p.Note("the idle sandbox could not be paused: %v", err)
		close(p.paused)
		p.paused = nil
	}
}

// Wake resumes the sandbox if it was paused.
func (p *Process) Wake(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused == nil {
		return nil
	}
	sandbox, err := p.Snapshots.Resume(ctx, p.Sandbox, bothy.ResumeOptions{})
	if err != nil {
		return err
	}
	if r := sandbox.Resumed; r != nil && r.Kind == bothy.SnapshotFiles {
		return final{fmt.Errorf("the sandbox was paused and came back without the agent: %s", r.Detail)}
	}
	close(p.paused)
	p.paused = nil
	return nil
}

// Asleep reports whether the sandbox is paused.
func (p *Process) Asleep() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paused != nil
}

// awake waits until the sandbox is not paused.
func (p *Process) awake(ctx context.Context) error {
	p.mu.Lock()
	paused := p.paused
	p.mu.Unlock()
	if paused == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-paused:
		return nil
	}
}

// Stop ends the agent: its input is closed, and it is killed if it does not end by itself.
func (p *Process) Stop(ctx context.Context, grace time.Duration) {
	if p.Asleep() || p.Exec.Stdin(ctx, p.Sandbox, p.PID, nil, true) != nil {
		return
	}
	leave, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if p.Exec.Output(leave, p.Sandbox, p.PID, p.offset, func(bothy.ExecEvent) error { return nil }) != nil {
		_ = p.Exec.Signal(ctx, p.Sandbox, p.PID, int(syscall.SIGKILL))
	}
}

// tail keeps the last line that is not empty.
type tail struct{ text string }

func (t *tail) add(p []byte) {
	const most = 2000
	t.text += string(p)
	t.text = t.text[max(0, len(t.text)-most):]
}

func (t *tail) line() string {
	all := strings.Split(strings.TrimSpace(strings.ToValidUTF8(t.text, "?")), "\n")
	return strings.TrimSpace(all[len(all)-1])
}
