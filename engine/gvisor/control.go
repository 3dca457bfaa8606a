package gvisor

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/control/client"
	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/sandbox"

	"github.com/bothy-dev/bothy"
)

const (
	// controlTime is how long a sentry may take for what takes milliseconds, however much
	// else the host has to do.
	controlTime = 30 * time.Second
	// slowestBytes is how much a sentry reads or writes in a second at least.
	slowestBytes = 16 << 20
)

// timeFor is how long a sentry may take to read or write so many bytes.
func timeFor(bytes int64) time.Duration {
	return controlTime + time.Duration(max(0, bytes)/slowestBytes)*time.Second
}

// connect opens a connection to a sentry's control socket.
func connect(sb *sandbox.Sandbox) (*urpc.Client, error) {
	socket, err := os.OpenFile(sb.ControlSocketPath, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer socket.Close()
	// The path by way of the descriptor is short enough for a socket's address.
	return client.ConnectTo(fmt.Sprintf("/proc/self/fd/%d", socket.Fd()))
}

// call has the sentry do something within a time. A sentry that takes longer hangs, and
// may still do it should it ever go on.
func (m *Machine) call(within time.Duration, method string, arg, result any) error {
	if m.e.controlTime > 0 {
		within = m.e.controlTime
	}
	conn, err := connect(m.sb)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Socket.Shutdown() })()
	err = conn.Call(method, arg, result)
	if err != nil && ctx.Err() != nil {
		return hung{bothy.Errorf(bothy.CodeEngine, "the kernel of sandbox %s has not answered within %v", m.id, within).
			WithHint("Try again if the host is overloaded; a sandbox whose kernel hangs can be deleted.").Because(err)}
	}
	return err
}

// hung is the error of a call that has not been answered, and may have been done.
type hung struct{ error }

func (h hung) Unwrap() error { return h.error }
