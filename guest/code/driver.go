package code

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/command"
	"github.com/bothy-dev/bothy/guest/procfs"
	"github.com/bothy-dev/bothy/internal/runes"
)

//go:embed driver/driver.sh driver/driver.py driver/driver.js driver/jupyter.py
var driverFiles embed.FS

// drivers say how each language's driver is started: by the first of the programs that exists,
// with the driver's file and the mark.
var drivers = map[string]struct {
	programs []string
	args     []string
	file     string
}{
	"python":     {[]string{"python3", "python"}, []string{"-u"}, "driver.py"},
	"javascript": {[]string{"node", "nodejs"}, nil, "driver.js"},
	"bash":       {[]string{"bash"}, []string{"-l"}, "driver.sh"},
}

// install puts a driver's file where its program can read it. The agent owns it
// and rewrites it each time: a sandbox may have been restored from one with an
// older agent.
func (m *Manager) install(name string) (string, error) {
	b, err := driverFiles.ReadFile("driver/" + name)
	if err == nil {
		err = os.MkdirAll(m.dir, 0o755)
	}
	if err != nil {
		return "", err
	}
	path := filepath.Join(m.dir, name)
	temp := path + "." + rand.Text()
	if err := os.WriteFile(temp, b, 0o644); err != nil {
		return "", err
	}
	return path, os.Rename(temp, path)
}

const (
	// maxReply bounds one line from a driver.
	maxReply = 24 << 20
	// markTime is how long to wait for the marks after the reply: code can close its outputs,
	// and then they never come.
	markTime = time.Second
)

// driver is a kernel that is one of our small programs. Requests and replies have separate
// pipes, so that the outputs belong to the code alone; a mark in both outputs shows where those
// of a piece of code end.
type driver struct {
	lang    string
	mark    string
	process *command.Process
	request *os.File
	replies *os.File

	reader *bufio.Reader
	once   sync.Once

	mu      sync.Mutex // held while a request is written
	running int        // counts up when code begins and when it ends: odd while it runs
	begun   bool       // the driver has said that it runs the code
	pending bool       // interrupt it as soon as it has begun
	since   int64      // when bash's code began, on procfs's clock
	asked   bool       // the code has been interrupted before
}

func (m *Manager) startDriver(lang string, spec command.Spec) (*driver, error) {
	file, err := m.install(drivers[lang].file)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeInternal, "the driver of %s cannot be stored in the sandbox", lang).
			WithHint("Its disk may be full.").Because(err)
	}
	d := &driver{lang: lang, mark: "\x1e" + rand.Text() + "\x1e"}
	requestR, requestW, err := command.Pipe(false)
	if err != nil {
		return nil, err
	}
	defer requestR.Close()
	replyR, replyW, err := command.Pipe(true)
	if err != nil {
		requestW.Close()
		return nil, err
	}
	defer replyW.Close()
	d.request, d.replies, d.reader = requestW, replyR, bufio.NewReader(replyR)
	spec.Extra = []*os.File{requestR, replyW}
	for _, program := range drivers[lang].programs {
		spec.Argv = append(append([]string{program}, drivers[lang].args...), file, d.mark)
		d.process, err = m.host.Start(spec)
		if bothy.ErrorCode(err) != bothy.CodeCommandNotFound {
			break
		}
	}
	if err != nil {
		d.closePipes()
		if bothy.ErrorCode(err) == bothy.CodeCommandNotFound {
			return nil, bothy.Errorf(bothy.CodeUnsupported, "this sandbox has no %s, so it cannot run code in it", lang).
				WithHint("Choose a template that has it, or install it. Commands need none: where bash is missing, sh runs them.").Because(err)
		}
		return nil, err
	}
	go func() { // pipes that children have inherited outlive the driver
		<-d.process.Done()
		d.closePipes()
	}()
	return d, nil
}

func (d *driver) closePipes() {
	d.once.Do(func() {
		d.request.Close()
		d.replies.Close()
	})
}

// reply is one line from a driver.
type reply struct {
	Begin bool                       `json:"begin"`
	Data  map[string]json.RawMessage `json:"data"`
	Value bool                       `json:"value"`
	End   bool                       `json:"end"`
	Error *bothy.CodeError           `json:"error"`
	Count int                        `json:"count"`
	// ExitCode is set for a shell.
	ExitCode *int `json:"-"`
}

func (d *driver) run(code string, quiet bool, fn func(Output) error) (Result, error) {
	outputs := d.follow()
	defer outputs.stop()
	d.count()
	defer d.count()
	if err := d.send(code, quiet); err != nil {
		return Result{}, errDied
	}
	replies := make(chan reply)
	done := make(chan struct{})
	defer close(done)
	failed := make(chan error, 1)
	go func() { failed <- d.receive(replies, done) }()
	var end *reply
	var res Result
	var late <-chan time.Time
	for end == nil || outputs.open() {
		var out Output
		select {
		case o := <-outputs.c:
			if o.Stream == "" {
				outputs.marks++
				continue
			}
			out = o
		case r := <-replies:
			if r.Begin {
				d.begin()
				continue
			}
			if r.End {
				end, late = &r, time.After(markTime)
				continue
			}
			out = Output{Data: textBundle(r.Data), Value: r.Value}
		case err := <-failed:
			if err == errLongReply {
				res.Truncated = true
				go func() { failed <- d.receive(replies, done) }()
				continue
			}
			if end == nil {
				outputs.drain(fn, quiet)
				return res, errDied
			}
			continue // nothing came
		case <-late:
			outputs.marks = 2
			continue
		}
		if quiet {
			continue
		}
		if err := fn(out); err != nil {
			return res, err
		}
	}
	res.Error, res.ExecutionCount, res.ExitCode = end.Error, end.Count, end.ExitCode
	return res, nil
}

// send gives the driver a piece of code.
func (d *driver) send(code string, quiet bool) error {
	var b []byte
	if d.lang == "bash" {
		code = strings.ReplaceAll(code, "\x00", "")
		b = fmt.Appendf(nil, "%012d%s", len(code), code)
	} else {
		b = append([]byte(jsonText(map[string]any{"code": code, "count": !quiet})), '\n')
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, err := d.request.Write(b)
	return err
}

// receive forwards replies until the one that ends a piece of code.
func (d *driver) receive(to chan<- reply, done <-chan struct{}) error {
	for {
		line, err := readLine(d.reader)
		if err != nil {
			return err
		}
		var r reply
		if d.lang == "bash" {
			r = bashReply(line)
		} else if json.Unmarshal(line, &r) != nil {
			continue // code that writes to descriptor 4 harms only itself
		}
		select {
		case to <- r:
		case <-done:
			return nil
		}
		if r.End {
			return nil
		}
	}
}

var errLongReply = bothy.Errorf(bothy.CodeTooLarge, "something displayed is too large")

// readLine reads a line of bounded length.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line) <= maxReply {
			line = append(line, part...)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if err == nil && len(line) > maxReply {
			err = errLongReply
		}
		return line, err
	}
}

// bashReply reads "begin" or "STATUS INTERRUPTED".
func bashReply(line []byte) reply {
	status, interrupted, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
	if status == "begin" {
		return reply{Begin: true}
	}
	r := reply{End: true}
	if code, err := strconv.Atoi(status); err == nil {
		r.ExitCode = &code
	}
	switch {
	case interrupted != "":
		r.Error = &bothy.CodeError{Name: "KeyboardInterrupt", Value: "the code was interrupted"}
	case status != "0":
		r.Error = &bothy.CodeError{Name: "ExitStatus", Value: status}
	}
	return r
}

// politeTime is how long code may take to comply with a request, before the signal.
const politeTime = 200 * time.Millisecond

// interrupt waits until the code has begun: a program that is only starting would be ended by
// the signal, or miss it.
func (d *driver) interrupt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.running%2 == 0:
	case d.begun:
		d.interruptNow()
	default:
		d.pending = true
	}
}

// interruptNow interrupts code that has begun. The caller holds d.mu.
func (d *driver) interruptNow() {
	if d.lang != "javascript" {
		_ = d.process.Signal(syscall.SIGINT)
		if d.lang == "bash" && d.asked { // a program that ignores interrupts must not make the shell die
			d.process.KillSince(d.since - 1)
		}
		d.asked = true
		return
	}
	run := d.running
	_, _ = d.request.Write([]byte(`{"interrupt":true}` + "\n"))
	time.AfterFunc(politeTime, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.running == run {
			_ = d.process.Signal(syscall.SIGINT)
		}
	})
}

// count is called before a piece of code is sent and when it has ended.
func (d *driver) count() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running++
	d.begun, d.pending, d.asked = false, false, false
	if d.lang == "bash" {
		d.since = procfs.Ticks()
	}
}

func (d *driver) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begun = true
	if d.pending {
		d.pending = false
		d.interruptNow()
	}
}

func (d *driver) kill() {
	d.process.Kill()
	d.closePipes()
}

func (d *driver) died() (Result, bool) {
	res, dead := died(d.process)
	if exit, _ := d.process.Exit(); dead && d.lang == "bash" {
		res.ExitCode = &exit.Code
	}
	return res, dead
}

// outputs follows the output of one piece of code while it runs.
type outputs struct {
	c      chan Output // with no stream: a mark
	cancel context.CancelFunc
	ended  chan struct{}
	marks  int
}

func (d *driver) follow() *outputs {
	ctx, cancel := context.WithCancel(context.Background())
	o := &outputs{c: make(chan Output), cancel: cancel, ended: make(chan struct{})}
	r := d.process.Attach(-1)
	go func() {
		defer close(o.ended)
		defer r.Close()
		cut := map[command.Stream]*cutter{
			command.Stdout: {name: "stdout", mark: []byte(d.mark)},
			command.Stderr: {name: "stderr", mark: []byte(d.mark)},
		}
		for {
			c, err := r.Next(ctx, nil)
			if err != nil {
				if err == io.EOF {
					for _, x := range cut {
						x.rest(ctx, o.c)
					}
				}
				return
			}
			if cut[c.Stream].write(ctx, c.Data, o.c) != nil {
				return
			}
		}
	}()
	return o
}

// open reports whether a mark is still expected.
func (o *outputs) open() bool { return o.marks < 2 }

// drain forwards what the code wrote before it died.
func (o *outputs) drain(fn func(Output) error, quiet bool) {
	late := time.After(markTime)
	for {
		select {
		case out := <-o.c:
			if out.Stream != "" && !quiet && fn(out) != nil {
				return
			}
		case <-o.ended:
			return
		case <-late:
			return
		}
	}
}

func (o *outputs) stop() {
	o.cancel()
	<-o.ended
}

// cutter removes the marks from one stream, and keeps characters whole.
type cutter struct {
	name string
	mark []byte
	held []byte // may be the beginning of a mark or of a character
}

func (c *cutter) write(ctx context.Context, b []byte, to chan<- Output) error {
	b = append(c.held, b...)
	c.held = nil
	for {
		i := bytes.Index(b, c.mark)
		if i < 0 {
			break
		}
		if err := c.emit(ctx, b[:i], to); err != nil {
			return err
		}
		if err := send(ctx, to, Output{}); err != nil {
			return err
		}
		b = b[i+len(c.mark):]
	}
	keep := max(partialMark(b, c.mark), runes.Partial(b))
	c.held = append([]byte(nil), b[len(b)-keep:]...)
	return c.emit(ctx, b[:len(b)-keep], to)
}

func (c *cutter) rest(ctx context.Context, to chan<- Output) {
	_ = c.emit(ctx, c.held, to)
	c.held = nil
}

func (c *cutter) emit(ctx context.Context, b []byte, to chan<- Output) error {
	if len(b) == 0 {
		return nil
	}
	return send(ctx, to, Output{Stream: c.name, Text: strings.ToValidUTF8(string(b), "\uFFFD")})
}

func send(ctx context.Context, to chan<- Output, o Output) error {
	select {
	case to <- o:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
