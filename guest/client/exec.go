package client

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/wire/processpb"
	"github.com/bothy-dev/bothy/internal/runes"
)

const (
	// maxInlineInput is the longest input that is sent with the start.
	maxInlineInput = 256 << 10
	// inputPiece is the length of the pieces in which longer input is sent.
	inputPiece = 64 << 10
	// cleanUp bounds the calls that are made after a caller has left.
	cleanUp = 5 * time.Second
)

// Exec runs a command to its end, or starts it when Background is set. When
// ctx ends before that, the command is killed unless it is to keep running.
// Bytes of the output that are not UTF-8 become U+FFFD.
func (c *Client) Exec(ctx context.Context, req bothy.ExecRequest) (*bothy.ExecResult, error) {
	if req.Background {
		return c.spawn(ctx, req)
	}
	res := &bothy.ExecResult{}
	outs := map[string]*headTail{}
	var written int64
	err := c.run(ctx, req, handlers{
		start: func(pid int) { res.PID = pid },
		data: func(d piece) error {
			o := outs[d.stream]
			if o == nil {
				o = newHeadTail(ctx)
				outs[d.stream] = o
			}
			o.write(d.bytes)
			written = max(written, d.offset+int64(len(d.bytes)))
			return nil
		},
		end: func(e *processpb.ProcessEvent_EndEvent) error {
			res.ExitCode, res.DurationMS = int(e.ExitCode), e.DurationMs
			res.TimedOut, res.OOMKilled, res.Truncated, res.Hint = e.TimedOut, e.OomKilled, e.Truncated, clip(e.Hint)
			return nil
		},
	})
	if err != nil {
		return nil, continues(err, req, res.PID)
	}
	for name, to := range map[string]struct{ text, base64 *string }{
		streamStdout: {&res.Stdout, &res.StdoutBase64}, streamStderr: {&res.Stderr, &res.StderrBase64},
	} {
		if o := outs[name]; o != nil {
			*to.text, *to.base64 = o.textOrBase64()
			res.Truncated = res.Truncated || o.dropped > 0
		}
	}
	if res.Truncated {
		res.Hint = strings.TrimSpace(fmt.Sprintf("%s The command wrote %d bytes, of which some in the middle are left out. Write them to a file, and read from that.", res.Hint, written))
	}
	return res, nil
}

// spawn starts a command and does not follow it.
func (c *Client) spawn(ctx context.Context, req bothy.ExecRequest) (*bothy.ExecResult, error) {
	start := startRequest(req)
	start.Detach = true
	open := req.Stdin == ""
	start.Stdin = &open
	res := &bothy.ExecResult{}
	err := c.begin(ctx, req, start, handlers{start: func(pid int) { res.PID = pid }})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// ExecStream calls fn for every piece of output and for the end. When ctx ends
// or fn fails, the command is killed unless it is to keep running.
func (c *Client) ExecStream(ctx context.Context, req bothy.ExecRequest, fn func(bothy.ExecEvent) error) error {
	pid := 0
	events := newEvents(func(e bothy.ExecEvent) error {
		e.PID = pid
		return fn(e)
	})
	err := c.run(ctx, req, handlers{start: func(p int) { pid = p }, data: events.data, end: events.end})
	if err != nil && pid != 0 && ctx.Err() == nil && !req.KeepRunning {
		c.kill(pid) // fn has failed
	}
	return continues(err, req, pid)
}

// continues adds the process to an error that did not end it, so that the caller can find it.
func continues(err error, req bothy.ExecRequest, pid int) error {
	var failed *bothy.Error
	if pid == 0 || !req.KeepRunning || !errors.As(err, &failed) {
		return err
	}
	e := *failed
	e.Detail += fmt.Sprintf("; the command, which is process %d, continues if the sandbox does", pid)
	e.Hint = fmt.Sprintf("Follow it with GET /v1/sandboxes/{id}/processes/%d/output or an SDK's process output, instead of starting it again.", pid)
	return &e
}

// Output calls fn for the output held from a byte offset on, and then follows
// the process to its end. Leaving does not touch the process.
func (c *Client) Output(ctx context.Context, pid int, from int64, fn func(bothy.ExecEvent) error) error {
	events := newEvents(func(e bothy.ExecEvent) error {
		e.PID = pid
		return fn(e)
	})
	s, err := c.open(ctx, rpc{procedure: processpb.ProcessConnectProcedure},
		&processpb.ConnectRequest{Process: byPID(pid), FromOffset: &from})
	if err != nil {
		return err
	}
	defer s.close()
	var res processpb.ConnectResponse
	return follow(handlers{data: events.data, end: events.end}, false, func() (*processpb.ProcessEvent, error) {
		err := s.next(&res)
		return res.Event, err
	})
}

// Wait returns when what is waited for is there, or its time is up.
func (c *Client) Wait(ctx context.Context, req bothy.WaitRequest) (*bothy.WaitResult, error) {
	b, err := json.Marshal(req)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the request cannot be sent to the guest").Because(err)
	}
	res, err := c.send(ctx, call{method: http.MethodPut, path: "/bothy/wait", user: req.User, body: bytes.NewReader(b), size: int64(len(b))})
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	found := &bothy.WaitResult{}
	if b, err = readAll(ctx, res.Body, res.ContentLength, maxError); err == nil {
		err = json.Unmarshal(b, found)
	}
	if err != nil {
		return nil, callError(ctx, err)
	}
	found.Line = clip(found.Line)
	return found, nil
}

// Processes lists what was started through the API and is running, or has
// ended with output still held.
func (c *Client) Processes(ctx context.Context) ([]bothy.ProcessInfo, error) {
	return c.processes(ctx, &processpb.ListRequest{All: true})
}

// AllProcesses lists these and all other running processes.
func (c *Client) AllProcesses(ctx context.Context) ([]bothy.ProcessInfo, error) {
	return c.processes(ctx, &processpb.ListRequest{All: true, Table: true})
}

func (c *Client) processes(ctx context.Context, req *processpb.ListRequest) ([]bothy.ProcessInfo, error) {
	var res processpb.ListResponse
	err := c.unary(ctx, rpc{procedure: processpb.ProcessListProcedure, retry: true, max: maxListing, parts: 2 * maxEntries}, req, &res)
	if err != nil {
		return nil, err
	}
	list := make([]bothy.ProcessInfo, len(res.Processes))
	for i, p := range res.Processes {
		list[i] = bothy.ProcessInfo{
			PID: int(p.Pid), Command: append([]string{p.GetConfig().GetCmd()}, p.GetConfig().GetArgs()...),
			Cwd: p.GetConfig().GetCwd(), Env: p.GetConfig().GetEnvs(), User: p.User, Tag: p.GetTag(),
			Terminal: p.Terminal, Running: p.Running, TimedOut: p.TimedOut, OOMKilled: p.OomKilled,
			OutputStart: p.OutputStart, OutputEnd: p.OutputEnd,
			Unmanaged: p.Unmanaged, ParentPID: int(p.Parent), CPUSeconds: float64(p.CpuMs) / 1000, MemoryBytes: p.MemoryBytes, Ports: portsOf(p.Ports),
		}
		if p.StartedUnixMs > 0 {
			at := time.UnixMilli(p.StartedUnixMs).UTC()
			list[i].StartedAt = &at
		}
		if p.ExitCode != nil {
			code := int(*p.ExitCode)
			list[i].ExitCode = &code
		}
	}
	return list, nil
}

// portsOf decodes ports, of which a guest may send any number.
func portsOf(b []byte) (ports []int) {
	for ; len(b) >= 2 && len(ports) < bothy.MaxProcessPorts; b = b[2:] {
		ports = append(ports, int(binary.BigEndian.Uint16(b)))
	}
	return ports
}

// Stdin writes to a background process; eof closes its input after that. It
// returns when the process has taken the data.
func (c *Client) Stdin(ctx context.Context, pid int, data []byte, eof bool) error {
	for len(data) > 0 {
		n := min(len(data), inputPiece)
		if err := c.input(ctx, pid, &processpb.ProcessInput{Input: &processpb.ProcessInput_Stdin{Stdin: data[:n]}}); err != nil {
			return err
		}
		data = data[n:]
	}
	if !eof {
		return nil
	}
	return c.unary(ctx, rpc{procedure: processpb.ProcessCloseStdinProcedure},
		&processpb.CloseStdinRequest{Process: byPID(pid)}, &processpb.CloseStdinResponse{})
}

func (c *Client) input(ctx context.Context, pid int, in *processpb.ProcessInput) error {
	return c.unary(ctx, rpc{procedure: processpb.ProcessSendInputProcedure},
		&processpb.SendInputRequest{Process: byPID(pid), Input: in}, &processpb.SendInputResponse{})
}

// Signal sends a signal, by number, to the process group; 9 ends everything
// that the process started.
func (c *Client) Signal(ctx context.Context, pid, signal int) error {
	if signal < 1 || signal > 64 {
		return bothy.Errorf(bothy.CodeInvalid, "%d is not a signal", signal).
			WithHint("Signals are numbers from 1 to 64, such as 2 (INT), 9 (KILL) or 15 (TERM).")
	}
	return c.unary(ctx, rpc{procedure: processpb.ProcessSendSignalProcedure},
		&processpb.SendSignalRequest{Process: byPID(pid), Number: int32(signal)}, &processpb.SendSignalResponse{})
}

func byPID(pid int) *processpb.ProcessSelector {
	return &processpb.ProcessSelector{Selector: &processpb.ProcessSelector_Pid{Pid: uint32(pid)}}
}

// handlers receive the events of a command.
type handlers struct {
	start func(pid int)
	data  func(piece) error
	end   func(*processpb.ProcessEvent_EndEvent) error
}

// The names of the streams.
const (
	streamStdout   = "stdout"
	streamStderr   = "stderr"
	streamTerminal = "pty"
)

// piece is some output. Its bytes are valid only during the call.
type piece struct {
	stream string
	offset int64
	bytes  []byte
}

func startRequest(req bothy.ExecRequest) *processpb.StartRequest {
	argv := req.Command.Argv()
	ms := uint64(math.Ceil(max(req.TimeoutSeconds, 0) * 1000))
	open := false
	start := &processpb.StartRequest{
		Process:   &processpb.ProcessConfig{Envs: req.Env},
		TimeoutMs: &ms, Stdin: &open, MergeStderr: req.MergeStderr,
	}
	if len(argv) > 0 {
		start.Process.Cmd, start.Process.Args = argv[0], argv[1:]
	}
	if req.Cwd != "" {
		start.Process.Cwd = &req.Cwd
	}
	if n := len(req.Stdin); n > maxInlineInput {
		open = true
	} else if n > 0 {
		start.Input = []byte(req.Stdin)
	}
	return start
}

// run runs a command to its end, or to that of ctx.
func (c *Client) run(ctx context.Context, req bothy.ExecRequest, h handlers) error {
	if req.KeepRunning {
		return c.begin(ctx, req, startRequest(req), h)
	}
	return c.killOnCancel(ctx, func(ctx context.Context, started func(pid int)) error {
		onStart := h.start
		h.start = func(pid int) {
			onStart(pid)
			started(pid)
		}
		return c.begin(ctx, req, startRequest(req), h)
	})
}

// begin starts a command and follows its stream of events.
func (c *Client) begin(ctx context.Context, req bothy.ExecRequest, start *processpb.StartRequest, h handlers) error {
	s, err := c.open(ctx, rpc{procedure: processpb.ProcessStartProcedure, user: req.User}, start)
	if err != nil {
		return err
	}
	defer s.close()
	onStart := h.start
	h.start = func(pid int) {
		onStart(pid)
		if len(req.Stdin) > maxInlineInput {
			go c.feed(context.WithoutCancel(ctx), pid, []byte(req.Stdin))
		}
	}
	var res processpb.StartResponse
	return follow(h, start.Detach, func() (*processpb.ProcessEvent, error) {
		err := s.next(&res)
		return res.Event, err
	})
}

// feed sends long input. The process need not read all of it.
func (c *Client) feed(ctx context.Context, pid int, data []byte) {
	_ = c.Stdin(ctx, pid, data, true)
}

// follow passes events on until the stream ends, which it may do before the command only if that
// was detached.
func follow(h handlers, detached bool, next func() (*processpb.ProcessEvent, error)) error {
	started, ended := false, false
	for {
		event, err := next()
		switch {
		case err == io.EOF && (ended || detached):
			return nil
		case err == io.EOF:
			return unreachable(io.ErrUnexpectedEOF)
		case err != nil:
			return err
		}
		switch e := event.GetEvent().(type) {
		case *processpb.ProcessEvent_Start:
			if h.start != nil && !started {
				h.start(int(e.Start.GetPid()))
			}
			started = true
		case *processpb.ProcessEvent_Data:
			if h.data != nil {
				err = h.data(pieceOf(e.Data))
			}
		case *processpb.ProcessEvent_End:
			if ended = true; h.end != nil {
				err = h.end(e.End)
			}
		}
		if err != nil {
			return err
		}
	}
}

func pieceOf(d *processpb.ProcessEvent_DataEvent) piece {
	p := piece{offset: d.GetOffset()}
	switch out := d.GetOutput().(type) {
	case *processpb.ProcessEvent_DataEvent_Stdout:
		p.stream, p.bytes = streamStdout, out.Stdout
	case *processpb.ProcessEvent_DataEvent_Stderr:
		p.stream, p.bytes = streamStderr, out.Stderr
	case *processpb.ProcessEvent_DataEvent_Pty:
		p.stream, p.bytes = streamTerminal, out.Pty
	}
	return p
}

// headTail keeps the first and the last half of what is written to it.
type headTail struct {
	head    []byte
	tail    []byte // a ring once it is full
	at      int    // where the ring's oldest byte is
	dropped int64
	// maxHead and maxTail are how much is kept, as far as memory was available for it.
	maxHead, maxTail, taken int
	ctx                     context.Context
}

// newHeadTail keeps up to DefaultExecOutputBytes, or as much as there is memory for.
func newHeadTail(ctx context.Context) *headTail {
	const half = bothy.DefaultExecOutputBytes / 2
	return &headTail{maxHead: half, maxTail: half, taken: smallAnswer, ctx: ctx}
}

// takeMemory reserves memory for more bytes, or limits what is kept to the memory there is.
func (h *headTail) takeMemory(more int) {
	most := h.maxHead + h.maxTail
	need := min(len(h.head)+len(h.tail)+more, most)
	if need <= h.taken {
		return
	}
	want := min(max(2*h.taken, need), most)
	if bothy.TakeMemory(h.ctx, int64(want-h.taken)*outputFactor) == nil {
		h.taken = want
		return
	}
	h.maxHead, h.maxTail = h.taken/2, h.taken-h.taken/2
	if excess := len(h.head) - h.maxHead; excess > 0 {
		h.tail = append(slices.Clone(h.head[h.maxHead:]), h.tail...)
		h.head = slices.Clone(h.head[:h.maxHead])
	}
	if excess := len(h.tail) - h.maxTail; excess > 0 {
		h.dropped += int64(excess)
		h.tail = slices.Clone(h.tail[excess:])
	}
}

func (h *headTail) write(b []byte) {
	h.takeMemory(len(b))
	if room := h.maxHead - len(h.head); room > 0 {
		n := min(room, len(b))
		h.head = append(h.head, b[:n]...)
		b = b[n:]
	}
	if skip := len(b) - h.maxTail; skip > 0 {
		h.dropped += int64(skip)
		b = b[skip:]
	}
	if room := h.maxTail - len(h.tail); room > 0 {
		n := min(room, len(b))
		h.tail = append(h.tail, b[:n]...)
		b = b[n:]
	}
	h.dropped += int64(len(b))
	for len(b) > 0 {
		n := copy(h.tail[h.at:], b)
		b = b[n:]
		h.at = (h.at + n) % h.maxTail
	}
}

func (h *headTail) text() string { return strings.ToValidUTF8(h.raw(), "\uFFFD") }

// textOrBase64 returns what was kept as text, and in base64 if it is not valid text.
func (h *headTail) textOrBase64() (text, encoded string) {
	raw := h.raw()
	if utf8.ValidString(raw) {
		return raw, ""
	}
	return strings.ToValidUTF8(raw, "\uFFFD"), base64.StdEncoding.EncodeToString([]byte(raw))
}

func (h *headTail) raw() string {
	var b strings.Builder
	b.Grow(len(h.head) + len(h.tail))
	b.Write(h.head)
	b.Write(h.tail[h.at:])
	b.Write(h.tail[:h.at])
	return b.String()
}

// events turns pieces of output into events. It joins a character that is split between two
// consecutive pieces.
type events struct {
	fn   func(bothy.ExecEvent) error
	held piece // the beginning of a character
}

func newEvents(fn func(bothy.ExecEvent) error) *events { return &events{fn: fn} }

func (e *events) data(p piece) error {
	if len(e.held.bytes) > 0 {
		if p.stream == e.held.stream && p.offset == e.held.offset+int64(len(e.held.bytes)) {
			p.bytes = append(e.held.bytes, p.bytes...)
			p.offset = e.held.offset
			e.held.bytes = nil
		} else if err := e.flush(); err != nil {
			return err
		}
	}
	if n := runes.Partial(p.bytes); n > 0 {
		whole := len(p.bytes) - n
		e.held = piece{p.stream, p.offset + int64(whole), append([]byte(nil), p.bytes[whole:]...)}
		p.bytes = p.bytes[:whole]
	}
	return e.emit(p)
}

func (e *events) flush() error {
	p := e.held
	e.held.bytes = nil
	return e.emit(p)
}

func (e *events) emit(p piece) error {
	if len(p.bytes) == 0 {
		return nil
	}
	event := bothy.ExecEvent{Stream: p.stream, Offset: p.offset}
	if utf8.Valid(p.bytes) && !isMostlyControl(p.bytes) {
		event.Data = string(p.bytes)
	} else {
		event.Data, event.Encoding = base64.StdEncoding.EncodeToString(p.bytes), "base64"
	}
	return e.fn(event)
}

// isMostlyControl reports whether so many characters are control characters, six bytes each in JSON, that
// base64 is far shorter.
func isMostlyControl(b []byte) bool {
	controls := 0
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\t' && c != '\r' {
			controls++
		}
	}
	return controls > 64+len(b)/8
}

func (e *events) end(end *processpb.ProcessEvent_EndEvent) error {
	if err := e.flush(); err != nil {
		return err
	}
	return e.fn(bothy.ExecEvent{
		Offset: end.OutputEnd, IsFinal: true, ExitCode: int(end.ExitCode), DurationMS: end.DurationMs,
		TimedOut: end.TimedOut, OOMKilled: end.OomKilled, Truncated: end.Truncated, Hint: clip(end.Hint),
	})
}
