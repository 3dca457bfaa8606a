package gvisor

import (
	"cmp"
	"context"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/gvisor/driver"
)

const (
	// controlTime is how long a sentry may take for what takes milliseconds, however busy the
	// host is.
	controlTime = 30 * time.Second
	// hungTime is how long one may take that has already been found to hang.
	hungTime = time.Second
	// slowestBytes is how many bytes a sentry reads or writes per second at least.
	slowestBytes = 16 << 20
)

// control is controlTime, or what replaces it in tests.
func (e *Engine) control() time.Duration { return cmp.Or(e.controlTime, controlTime) }

// timeFor is how long a sentry may take to read or write n bytes.
func (e *Engine) timeFor(bytes int64) time.Duration {
	return e.control() + time.Duration(max(0, bytes)/slowestBytes)*time.Second
}

// do has a starting sentry execute an operation.
func (p *preparedSentry) do(ctx context.Context, op driver.Op, files ...*os.File) error {
	return p.sentry.do(ctx, p.sb.socket, op, files)
}

// do makes the sentry execute an operation within a time. A sentry that takes longer hangs, and
// may still do it if it ever continues. So does one that does nothing for controlTime: written
// tells how much has come of the operation, if it is not nil.
func (m *Machine) do(within time.Duration, op driver.Op, written func() int64, files ...*os.File) error {
	sentry, err := m.e.sentryOf(m.kept)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	begun := time.Now()
	if within > m.e.control() {
		defer m.watchStall(cancel, written)()
	}
	err = sentry.do(ctx, m.sb.socket, op, files)
	if err != nil && ctx.Err() != nil {
		return hung{bothy.Errorf(bothy.CodeEngine, "the kernel of sandbox %s has not answered within %v", m.id, time.Since(begun).Round(time.Second)).
			WithHint("Try again if the host is overloaded; a sandbox whose kernel hangs can be deleted.").Because(err)}
	}
	return err
}

const (
	// stallLooks is how often a stall is looked for until it has lasted too long.
	stallLooks = 15
	// idleShare is the share of a processor that a sentry uses which does nothing.
	idleShare = 0.01
)

// watchStall calls stalled when the machine has neither used a processor nor written anything for
// as long as a control call may take, unless stop is called before. After stop it reads no files any more.
func (m *Machine) watchStall(stalled func(), written func() int64) (stop func()) {
	done := make(chan struct{})
	every := m.e.control() / stallLooks
	look := func() (cpu float64, bytes int64) {
		cpu, _ = m.CPUSeconds()
		if written != nil {
			bytes = written()
		}
		return cpu, bytes
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		cpu, bytes := look()
		for quiet := 0; quiet < stallLooks; quiet++ {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			nowCPU, nowBytes := look()
			if nowCPU-cpu > idleShare*every.Seconds() || nowBytes != bytes {
				quiet = -1
			}
			cpu, bytes = nowCPU, nowBytes
		}
		stalled()
	})
	return func() { close(done); watching.Wait() }
}

// sizeOf is how much has been written to files.
func sizeOf(files []*os.File) func() int64 {
	return func() (n int64) {
		for _, f := range files {
			var st unix.Stat_t
			if unix.Fstat(int(f.Fd()), &st) == nil {
				n += st.Size + st.Blocks*512
			}
		}
		return n
	}
}

// hung is the error of a call that was not answered, and may have been executed.
type hung struct{ error }

func (h hung) Unwrap() error { return h.error }
