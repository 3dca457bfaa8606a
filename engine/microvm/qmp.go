package microvm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// qmp is a connection to QEMU's monitor. One goroutine at a time may use it.
type qmp struct {
	conn *net.UnixConn
	in   *json.Decoder
}

// qmpMessage is any message from QEMU.
type qmpMessage struct {
	Greeting json.RawMessage `json:"QMP"`
	Event    string          `json:"event"`
	Data     json.RawMessage `json:"data"`
	Return   json.RawMessage `json:"return"`
	Error    *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
}

// qmpError is QEMU's refusal of a command.
type qmpError struct{ command, text string }

func (e *qmpError) Error() string { return fmt.Sprintf("qemu: %s: %s", e.command, e.text) }

// dialQMP waits until QEMU answers. QEMU serves one connection at a time.
func dialQMP(ctx context.Context, path string) (*qmp, error) {
	conn, err := dialUnix(path)
	if err != nil {
		return nil, err
	}
	q := &qmp{conn: conn, in: json.NewDecoder(bufio.NewReader(conn))}
	defer q.bound(ctx)()
	for {
		var m qmpMessage
		if err := q.in.Decode(&m); err != nil {
			conn.Close()
			return nil, closeReason(ctx, fmt.Errorf("wait for QEMU: %w", err))
		}
		if m.Greeting != nil {
			break
		}
	}
	if _, err := q.do(ctx, "qmp_capabilities", nil); err != nil {
		conn.Close()
		return nil, err
	}
	return q, nil
}

// closeReason prefers the reason for which the connection was closed.
func closeReason(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return errors.Join(context.Cause(ctx), err)
	case errors.Is(err, os.ErrDeadlineExceeded): // of a context that ctx is derived from, and which ends first
		return errors.Join(errSilent, err)
	}
	return err
}

// bound makes reads and writes fail when ctx ends, until the returned function is called.
func (q *qmp) bound(ctx context.Context) (unbound func()) {
	stop := context.AfterFunc(ctx, func() { q.conn.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

func (q *qmp) Close() error { return q.conn.Close() }

// errSilent is the error for a command that QEMU does not answer.
var errSilent = errors.New("QEMU does not answer")

// do executes a command and returns its answer. files are passed to QEMU with it.
func (q *qmp) do(ctx context.Context, command string, args any, files ...*os.File) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience(), errSilent)
	defer cancel()
	defer q.bound(ctx)()
	b, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, args})
	if err != nil {
		return nil, err
	}
	var rights []byte
	if len(files) > 0 {
		var fds []int
		for _, f := range files {
			fds = append(fds, int(f.Fd()))
		}
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := q.conn.WriteMsgUnix(b, rights, nil); err != nil {
		return nil, closeReason(ctx, fmt.Errorf("qemu: %s: %w", command, err))
	}
	for {
		var m qmpMessage
		if err := q.in.Decode(&m); err != nil {
			return nil, closeReason(ctx, fmt.Errorf("qemu: %s: %w", command, err))
		}
		switch {
		case m.Error != nil:
			return nil, &qmpError{command, m.Error.Desc}
		case m.Return != nil:
			return m.Return, nil
		}
	}
}

// event waits for the next event.
func (q *qmp) event(ctx context.Context) (string, json.RawMessage, error) {
	defer q.bound(ctx)()
	for {
		var m qmpMessage
		if err := q.in.Decode(&m); err != nil {
			return "", nil, closeReason(ctx, err)
		}
		if m.Event != "" {
			return m.Event, m.Data, nil
		}
	}
}
