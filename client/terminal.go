package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/coder/websocket"

	"github.com/bothy-dev/bothy"
)

// Terminal implements bothy.ExecService. The command must be a line.
func (e *Exec) Terminal(ctx context.Context, id string, req bothy.TerminalRequest) (bothy.Terminal, error) {
	if req.Command.Args != nil {
		return nil, bothy.Errorf(bothy.CodeUnsupported, "a terminal over the network takes a line, not an argument vector").
			WithHint("Quote the arguments into one line.")
	}
	q := url.Values{}
	setIf(q, "command", req.Command.Line)
	setIf(q, "cwd", req.Cwd)
	setIf(q, "user", req.User)
	if req.Cols > 0 && req.Rows > 0 {
		q.Set("cols", strconv.Itoa(req.Cols))
		q.Set("rows", strconv.Itoa(req.Rows))
	}
	if req.Process != 0 {
		q.Set("process", strconv.Itoa(req.Process))
		q.Set("from", strconv.FormatInt(req.From, 10))
	}
	if req.Keep {
		q.Set("keep", "true")
	}
	for k, v := range req.Env {
		q.Set("env."+k, v)
	}
	r, err := e.conn.request(ctx, http.MethodGet, sandboxPath(id, "/terminal"), q, nil)
	if err != nil {
		return nil, err
	}
	ws, header, err := e.conn.dial(ctx, r)
	if err != nil {
		return nil, err
	}
	return openTerminal(e.conn, ws, header), nil
}

// terminal is a PTY at the other end of a WebSocket.
type terminal struct {
	conn *conn
	ws   *websocket.Conn
	pid  int
	out  *io.PipeReader
	// done is closed when the terminal has ended; then exit and err are set.
	done chan struct{}
	exit int
	err  error
}

func openTerminal(c *conn, ws *websocket.Conn, h http.Header) *terminal {
	ws.SetReadLimit(-1)
	out, in := io.Pipe()
	t := &terminal{conn: c, ws: ws, out: out, done: make(chan struct{})}
	t.pid, _ = strconv.Atoi(h.Get("X-Process-Id"))
	go t.receive(in)
	return t
}

func (t *terminal) receive(to *io.PipeWriter) {
	defer close(t.done)
	for {
		kind, data, err := t.ws.Read(context.Background())
		if err != nil {
			t.exit, t.err = t.ending(err)
			_ = to.CloseWithError(t.err) // nil is the end of file
			return
		}
		if kind == websocket.MessageBinary {
			_, _ = to.Write(data) // fails once the reader has closed
		}
	}
}

// ending derives the exit code from the way in which the server hung up.
func (t *terminal) ending(err error) (int, error) {
	var closed websocket.CloseError
	if !errors.As(err, &closed) {
		return -1, t.conn.brokenOff(context.Background(), err)
	}
	switch closed.Code {
	case websocket.StatusNormalClosure:
		var reason struct {
			ExitCode *int `json:"exit_code"`
		}
		if json.Unmarshal([]byte(closed.Reason), &reason) == nil && reason.ExitCode != nil {
			return *reason.ExitCode, nil
		}
	case websocket.StatusPolicyViolation: // the key was revoked, or has expired
		return -1, bothy.Errorf(bothy.CodeUnauthenticated, "%s", closed.Reason).WithHint("Make a new key with `bothy token create`.").Because(err)
	}
	return -1, t.conn.brokenOff(context.Background(), err)
}

func (t *terminal) Read(p []byte) (int, error) { return t.out.Read(p) }

func (t *terminal) Write(p []byte) (int, error) {
	if err := t.ws.Write(context.Background(), websocket.MessageBinary, p); err != nil {
		return 0, t.conn.brokenOff(context.Background(), err)
	}
	return len(p), nil
}

func (t *terminal) Resize(cols, rows int) error {
	frame := fmt.Sprintf(`{"resize":{"cols":%d,"rows":%d}}`, cols, rows)
	if err := t.ws.Write(context.Background(), websocket.MessageText, []byte(frame)); err != nil {
		return t.conn.brokenOff(context.Background(), err)
	}
	return nil
}

func (t *terminal) PID() int { return t.pid }

func (t *terminal) Wait() (int, error) {
	<-t.done
	return t.exit, t.err
}

// Close hangs up.
func (t *terminal) Close() error {
	_ = t.out.Close()
	err := t.ws.Close(websocket.StatusNormalClosure, "")
	<-t.done
	if t.err == nil || err == nil {
		return nil // it had ended, or has now
	}
	return t.ws.CloseNow()
}
