package gvisor

import (
	"context"
	"os"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/gvisor/driver"
)

const (
	// controlTime is how long a sentry may take for what takes milliseconds, however busy the
	// host is.
	controlTime = 30 * time.Second
	// slowestBytes is how many bytes a sentry reads or writes per second at least.
	slowestBytes = 16 << 20
)

// timeFor is how long a sentry may take to read or write n bytes.
func timeFor(bytes int64) time.Duration {
	return controlTime + time.Duration(max(0, bytes)/slowestBytes)*time.Second
}

// do has a starting sentry execute an operation.
func (p *preparedSentry) do(ctx context.Context, op driver.Op, files ...*os.File) error {
	return p.sentry.do(ctx, p.sb.ControlSocketPath, op, files)
}

// do makes the sentry execute an operation within a time. A sentry that takes longer hangs, and
// may still do it if it ever continues.
func (m *Machine) do(within time.Duration, op driver.Op, files ...*os.File) error {
	if m.e.controlTime > 0 {
		within = m.e.controlTime
	}
	sentry, err := m.e.sentryOf(m.kept)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	err = sentry.do(ctx, m.sb.ControlSocketPath, op, files)
	if err != nil && ctx.Err() != nil {
		return hung{bothy.Errorf(bothy.CodeEngine, "the kernel of sandbox %s has not answered within %v", m.id, within).
			WithHint("Try again if the host is overloaded; a sandbox whose kernel hangs can be deleted.").Because(err)}
	}
	return err
}

// hung is the error of a call that was not answered, and may have been executed.
type hung struct{ error }

func (h hung) Unwrap() error { return h.error }
