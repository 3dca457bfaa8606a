package client

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/wire/processpb"
)

// Terminal opens a PTY. Without a command it runs the shell. ctx bounds only the opening.
func (c *Client) Terminal(ctx context.Context, req bothy.TerminalRequest) (bothy.Terminal, error) {
	if req.Process != 0 {
		return c.joinTerminal(ctx, req)
	}
	exec := bothy.ExecRequest{Command: req.Command, Cwd: req.Cwd, Env: req.Env, User: req.User}
	if req.Command.Line == "" && req.Command.Args == nil {
		exec.Command.Args = []string{"/bin/bash", "-l"}
	}
	start := startRequest(exec)
	if req.Keep {
		tag := bothy.KeptTag
		start.Tag = &tag
	}
	start.Pty = &processpb.PTY{Size: windowSize(req.Cols, req.Rows)}
	return c.attachTerminal(ctx, rpc{procedure: processpb.ProcessStartProcedure, user: req.User}, start)
}

// joinTerminal attaches to an existing terminal.
func (c *Client) joinTerminal(ctx context.Context, req bothy.TerminalRequest) (bothy.Terminal, error) {
	list, err := c.Processes(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		if p.PID == req.Process && !p.Terminal {
			return nil, bothy.Errorf(bothy.CodeConflict, "process %d has no terminal", req.Process).
				WithHint("Follow its output instead.")
		}
	}
	t, err := c.attachTerminal(ctx, rpc{procedure: processpb.ProcessConnectProcedure},
		&processpb.ConnectRequest{Process: byPID(req.Process), FromOffset: &req.From})
	if err == nil && req.Cols > 0 && req.Rows > 0 {
		_ = t.Resize(req.Cols, req.Rows) // it may have ended
	}
	return t, err
}

// attachTerminal makes a call whose answer describes a process with a terminal: starting and
// joining have answers of the same form.
func (c *Client) attachTerminal(ctx context.Context, r rpc, req proto.Message) (bothy.Terminal, error) {
	life, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, hangUp)
	t := &terminal{c: c, hangUp: hangUp, done: make(chan struct{})}
	var err error
	if t.s, err = c.open(life, r, req); err == nil {
		err = t.begin()
	}
	if !stop() && err == nil {
		err = callError(ctx, ctx.Err())
	}
	if err != nil {
		hangUp()
		return nil, err
	}
	return t, nil
}

func windowSize(cols, rows int) *processpb.PTY_Size {
	if cols <= 0 || rows <= 0 {
		cols, rows = 80, 24
	}
	return &processpb.PTY_Size{Cols: uint32(cols), Rows: uint32(rows)}
}

// terminal is an open PTY. Read must be called to its end for Wait to return.
type terminal struct {
	c      *Client
	s      *stream
	hangUp context.CancelFunc
	pid    int

	readMu sync.Mutex
	res    processpb.StartResponse
	rest   []byte // output that was received and not yet read

	ending sync.Once
	done   chan struct{}
	code   int
	err    error
}

func (t *terminal) begin() error {
	if err := t.s.next(&t.res); err != nil {
		t.s.close()
		if err == io.EOF {
			return unreachable(io.ErrUnexpectedEOF)
		}
		return err
	}
	t.pid = int(t.res.GetEvent().GetStart().GetPid())
	return nil
}

func (t *terminal) PID() int { return t.pid }

func (t *terminal) Read(p []byte) (int, error) {
	t.readMu.Lock()
	defer t.readMu.Unlock()
	for len(t.rest) == 0 {
		select {
		case <-t.done:
			return 0, t.readError()
		default:
		}
		if err := t.s.next(&t.res); err != nil {
			t.end(0, err)
			continue
		}
		switch e := t.res.GetEvent().GetEvent().(type) {
		case *processpb.ProcessEvent_Data:
			t.rest = pieceOf(e.Data).bytes
		case *processpb.ProcessEvent_End:
			t.end(int(e.End.GetExitCode()), nil)
		}
	}
	n := copy(p, t.rest)
	t.rest = t.rest[n:]
	return n, nil
}

func (t *terminal) readError() error {
	if t.err != nil && !errors.Is(t.err, io.EOF) {
		return t.err
	}
	return io.EOF
}

// end records how the terminal ended. Only the first end counts.
func (t *terminal) end(code int, err error) {
	t.ending.Do(func() {
		t.code, t.err = code, err
		close(t.done)
		t.hangUp()
		t.s.close()
	})
}

func (t *terminal) Write(p []byte) (int, error) {
	for n := 0; n < len(p); n += inputPiece {
		piece := p[n:min(len(p), n+inputPiece)]
		err := t.c.input(context.Background(), t.pid, &processpb.ProcessInput{Input: &processpb.ProcessInput_Pty{Pty: piece}})
		if err != nil {
			return n, err
		}
	}
	return len(p), nil
}

func (t *terminal) Resize(cols, rows int) error {
	return t.c.unary(context.Background(), rpc{procedure: processpb.ProcessUpdateProcedure},
		&processpb.UpdateRequest{Process: byPID(t.pid), Pty: &processpb.PTY{Size: windowSize(cols, rows)}}, &processpb.UpdateResponse{})
}

func (t *terminal) Wait() (int, error) {
	<-t.done
	return t.code, t.err
}

// Detach leaves the terminal running.
func (t *terminal) Detach() error {
	t.end(0, os.ErrClosed)
	return nil
}

// Close hangs up: the processes on the terminal get a signal.
func (t *terminal) Close() error {
	select {
	case <-t.done:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanUp)
	defer cancel()
	err := t.c.Signal(ctx, t.pid, 1)
	t.end(0, os.ErrClosed)
	if bothy.ErrorCode(err) == bothy.CodeProcessNotFound {
		return nil // it has just ended
	}
	if err == nil {
		go t.hangUpAgain()
	}
	return err
}

// hangUpAgain repeats the signal for a while. A shell that gets it between two checks for input
// can miss it: a real line that is cut off would wake it, but a signal that came before does
// not.
func (t *terminal) hangUpAgain() {
	for pause := 100 * time.Millisecond; pause < 5*time.Second; pause *= 2 {
		time.Sleep(pause)
		ctx, cancel := context.WithTimeout(context.Background(), cleanUp)
		err := t.c.Signal(ctx, t.pid, 1)
		cancel()
		if err != nil {
			return // it has ended, or cannot be reached any more
		}
	}
}
