package jupyter

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// The ports of a kernel. Over unix sockets they are the ends of file names.
const (
	portShell = iota + 1
	portIOPub
	portStdin
	portControl
	portHeartbeat
)

// Connection describes how to reach a kernel: by unix sockets in a folder of its own.
type Connection struct {
	// File is the connection file that the kernel is started with.
	File string

	prefix string
	key    string
}

// NewConnection writes a connection file in dir, which must belong to the kernel's user and be
// accessible to no other.
func NewConnection(dir string, uid, gid int) (*Connection, error) {
	key := make([]byte, 32)
	rand.Read(key)
	c := &Connection{File: filepath.Join(dir, "connection.json"), prefix: filepath.Join(dir, "s"), key: hex.EncodeToString(key)}
	b, err := json.Marshal(map[string]any{
		"transport": "ipc", "ip": c.prefix, "key": c.key, "signature_scheme": "hmac-sha256", "kernel_name": "",
		"shell_port": portShell, "iopub_port": portIOPub, "stdin_port": portStdin,
		"control_port": portControl, "hb_port": portHeartbeat,
	})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(c.File, b, 0o600); err != nil {
		return nil, err
	}
	return c, os.Lchown(c.File, uid, gid)
}

func (c *Connection) dial(ctx context.Context, port int, kind string) (*socket, error) {
	return dial(ctx, "unix", fmt.Sprintf("%s-%d", c.prefix, port), kind)
}

// Output is produced by code while it runs. Exactly one of Text, Data and Error is set.
type Output struct {
	// Stream is stdout or stderr, and Text what was written to it.
	Stream, Text string
	// Data is what was displayed, by MIME type.
	Data map[string]json.RawMessage
	// Value is set if that is the value of the last expression.
	Value bool
	// Error is the exception that ended the code.
	Error *Error
}

// Error is an exception.
type Error struct {
	Name, Value string
	Traceback   string
}

// Reply says how code ended.
type Reply struct {
	ExecutionCount int
	// Truncated is set if there was too much output to keep.
	Truncated bool
}

// ErrClosed is returned when the kernel has gone.
var ErrClosed = errors.New("the kernel has gone")

// Kernel is a connection to a running kernel. Execute may be called by one
// goroutine at a time, the other methods by any.
type Kernel struct {
	conn    *Connection
	session string
	shell   *socket
	iopub   *socket

	mu      sync.Mutex
	current *execution
	closed  chan struct{}
	once    sync.Once
}

// Connect connects to a kernel as soon as it is ready, until ctx ends.
func Connect(ctx context.Context, conn *Connection) (*Kernel, error) {
	k := &Kernel{conn: conn, session: randomID(), closed: make(chan struct{})}
	var err error
	if k.shell, err = k.dialWithRetry(ctx, portShell, "DEALER"); err != nil {
		return nil, err
	}
	if k.iopub, err = k.dialWithRetry(ctx, portIOPub, "SUB"); err != nil {
		k.shell.close()
		return nil, err
	}
	go k.receive(k.shell, (*execution).onShell)
	go k.receive(k.iopub, (*execution).onIOPub)
	if err = k.iopub.send([]byte{1}); err == nil { // subscribe to everything
		err = k.awaitReady(ctx)
	}
	if err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// dialWithRetry dials until something answers.
func (k *Kernel) dialWithRetry(ctx context.Context, port int, kind string) (*socket, error) {
	for pause := 2 * time.Millisecond; ; pause = min(pause*3/2, 50*time.Millisecond) {
		s, err := k.conn.dial(ctx, port, kind)
		if err == nil {
			return s, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// awaitReady asks the kernel about itself until an answer is received on both sockets: a
// subscription takes effect some time after it is made. All questions have one id, so that any
// answer counts: on a busy host it takes longer than the pauses.
func (k *Kernel) awaitReady(ctx context.Context) error {
	x := newExecution()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		if err := k.request(x, "kernel_info_request", struct{}{}); err != nil {
			return err
		}
		select {
		case <-x.done:
			return nil
		case <-k.closed:
			return ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// Close closes the connection. The kernel keeps running.
func (k *Kernel) Close() {
	k.once.Do(func() {
		close(k.closed)
		k.shell.close()
		k.iopub.close()
	})
}

// Closed is closed when the connection is lost.
func (k *Kernel) Closed() <-chan struct{} { return k.closed }

// Options say how code is run.
type Options struct {
	// Silent code leaves no trace in the history and displays nothing.
	Silent bool
}

// Execute runs code to its end and calls fn for its output. Ending ctx does not end the code:
// interrupt it for that, and keep waiting.
func (k *Kernel) Execute(ctx context.Context, code string, o Options, fn func(Output) error) (Reply, error) {
	x := newExecution()
	err := k.request(x, "execute_request", map[string]any{
		"code": code, "silent": o.Silent, "store_history": !o.Silent, "user_expressions": struct{}{},
		"allow_stdin": false, "stop_on_error": true,
	})
	if err != nil {
		return Reply{}, err
	}
	defer k.finish(x)
	for {
		out, ok, news := x.next()
		if ok {
			if err := fn(out); err != nil {
				return x.reply(), err
			}
			continue
		}
		select {
		case <-x.done:
			if _, ok, _ := x.peek(); !ok {
				return x.reply(), nil
			}
		case <-news:
		case <-k.closed:
			return x.reply(), ErrClosed
		case <-ctx.Done():
			return x.reply(), ctx.Err()
		}
	}
}

// request makes x current and sends a message for it.
func (k *Kernel) request(x *execution, kind string, content any) error {
	k.mu.Lock()
	k.current = x
	k.mu.Unlock()
	frames, err := k.message(x.id, kind, content)
	if err != nil {
		return err
	}
	if err := k.shell.send(frames...); err != nil {
		return ErrClosed
	}
	return nil
}

func (k *Kernel) finish(x *execution) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.current == x {
		k.current = nil
	}
}

// Interrupt asks the kernel, by message, to stop what it does. Kernels that need a signal
// instead get it from the code that started them.
func (k *Kernel) Interrupt(ctx context.Context) error { return k.control(ctx, "interrupt_request") }

// control sends a message that does not wait behind running code.
func (k *Kernel) control(ctx context.Context, kind string) error {
	s, err := k.conn.dial(ctx, portControl, "DEALER")
	if err != nil {
		return err
	}
	defer s.close()
	frames, err := k.message(randomID(), kind, struct{}{})
	if err != nil {
		return err
	}
	if err := s.send(frames...); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		s.c.SetReadDeadline(deadline)
	}
	_, err = s.receive() // closing before the answer would lose the request
	return err
}

type header struct {
	ID      string `json:"msg_id"`
	Session string `json:"session"`
	User    string `json:"username"`
	Date    string `json:"date"`
	Type    string `json:"msg_type"`
	Version string `json:"version"`
}

const delimiter = "<IDS|MSG>"

// message returns the frames of a message.
func (k *Kernel) message(id, kind string, content any) ([][]byte, error) {
	h, err := json.Marshal(header{id, k.session, "bothy", time.Now().UTC().Format(time.RFC3339Nano), kind, "5.3"})
	if err != nil {
		return nil, err
	}
	c, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	empty := []byte("{}")
	return [][]byte{[]byte(delimiter), k.sign(h, empty, empty, c), h, empty, empty, c}, nil
}

func (k *Kernel) sign(parts ...[]byte) []byte {
	m := hmac.New(sha256.New, []byte(k.conn.key))
	for _, p := range parts {
		m.Write(p)
	}
	return hex.AppendEncode(nil, m.Sum(nil))
}

// incoming is a message from the kernel.
type incoming struct {
	kind    string
	content []byte
}

// receive passes messages to the execution that they belong to, until the connection ends.
func (k *Kernel) receive(s *socket, handle func(*execution, incoming)) {
	defer k.Close()
	for {
		frames, err := s.receive()
		if errors.Is(err, errTooLong) {
			k.withCurrent(func(x *execution) { x.truncate() })
			continue
		}
		if err != nil {
			return
		}
		m, parent, ok := k.parse(frames)
		if !ok {
			continue
		}
		k.withCurrent(func(x *execution) {
			if x.id == parent {
				handle(x, m)
			}
		})
	}
}

func (k *Kernel) withCurrent(f func(*execution)) {
	k.mu.Lock()
	x := k.current
	k.mu.Unlock()
	if x != nil {
		f(x)
	}
}

// parse checks a message's signature and decodes it.
func (k *Kernel) parse(frames [][]byte) (m incoming, parent string, ok bool) {
	for len(frames) > 0 && string(frames[0]) != delimiter {
		frames = frames[1:]
	}
	if len(frames) < 6 || !hmac.Equal(frames[1], k.sign(frames[2:6]...)) {
		return m, "", false
	}
	var h, p header
	if json.Unmarshal(frames[2], &h) != nil || json.Unmarshal(frames[3], &p) != nil {
		return m, "", false
	}
	return incoming{h.Type, frames[5]}, p.ID, true
}

const (
	// maxQueued bounds the bytes of output that wait to be taken. A kernel must be read
	// continuously: it drops what is not read.
	maxQueued = 8 << 20
)

// execution is one request and its answers.
type execution struct {
	id   string
	done chan struct{} // closed when the reply and the end were received

	mu      sync.Mutex
	queue   []Output
	queued  int
	news    chan struct{}
	replied bool
	idle    bool
	ended   bool
	result  Reply
}

func newExecution() *execution {
	return &execution{id: randomID(), done: make(chan struct{})}
}

func (x *execution) reply() Reply {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.result
}

func (x *execution) truncate() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.result.Truncated = true
}

// peek returns the next output, or a channel that is closed when there is one.
func (x *execution) peek() (Output, bool, <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.queue) > 0 {
		return x.queue[0], true, nil
	}
	if x.news == nil {
		x.news = make(chan struct{})
	}
	return Output{}, false, x.news
}

// next takes the next output.
func (x *execution) next() (Output, bool, <-chan struct{}) {
	out, ok, news := x.peek()
	if ok {
		x.mu.Lock()
		x.queue = x.queue[1:]
		x.queued -= out.size()
		x.mu.Unlock()
	}
	return out, ok, news
}

func (o *Output) size() int {
	n := len(o.Text)
	for k, v := range o.Data {
		n += len(k) + len(v)
	}
	return n
}

func (x *execution) push(o Output) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := o.size(); x.queued+n > maxQueued && len(x.queue) > 0 && o.Error == nil {
		x.result.Truncated = true
		return
	} else {
		x.queued += n
	}
	x.queue = append(x.queue, o)
	if x.news != nil {
		close(x.news)
		x.news = nil
	}
}

// end records one of the two messages that must be received.
func (x *execution) end(replied, idle bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.replied, x.idle = x.replied || replied, x.idle || idle
	if x.replied && x.idle && !x.ended {
		x.ended = true
		close(x.done)
	}
}

func (x *execution) onShell(m incoming) {
	switch m.kind {
	case "execute_reply":
		var c struct {
			Count int `json:"execution_count"`
		}
		_ = json.Unmarshal(m.content, &c)
		x.mu.Lock()
		x.result.ExecutionCount = c.Count
		x.mu.Unlock()
		x.end(true, false)
	case "kernel_info_reply":
		x.end(true, false)
	}
}

func (x *execution) onIOPub(m incoming) {
	var c struct {
		Name  string                     `json:"name"`
		Text  string                     `json:"text"`
		Data  map[string]json.RawMessage `json:"data"`
		State string                     `json:"execution_state"`
		EName string                     `json:"ename"`
		Value string                     `json:"evalue"`
		Trace []string                   `json:"traceback"`
	}
	if json.Unmarshal(m.content, &c) != nil {
		return
	}
	switch m.kind {
	case "stream":
		x.push(Output{Stream: c.Name, Text: c.Text})
	case "display_data", "execute_result", "update_display_data":
		x.push(Output{Data: c.Data, Value: m.kind == "execute_result"})
	case "error":
		x.push(Output{Error: &Error{c.EName, c.Value, strings.Join(c.Trace, "\n")}})
	case "status":
		if c.State == "idle" {
			x.end(false, true)
		}
	}
}

func randomID() string {
	b := make([]byte, 16)
	rand.Read(b)
	return hex.EncodeToString(b)
}
