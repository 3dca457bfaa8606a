package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/account"
	"github.com/bothy-dev/bothy/guest/command"
	"github.com/bothy-dev/bothy/guest/files"
	"github.com/bothy-dev/bothy/guest/procfs"
)

const (
	// maxWaitBody bounds a request: its texts, escaped.
	maxWaitBody = 64 << 10
	// askTime bounds one request to a URL: a server may prepare its first answer for long.
	askTime = 30 * time.Second
	// firstLook and lastLook are the pauses between two looks, at the beginning and later.
	firstLook = 10 * time.Millisecond
	lastLook  = 250 * time.Millisecond
	// maxLine is how much of one line is searched at once, and shownLine what is reported of it.
	maxLine   = 64 << 10
	shownLine = 2000
)

// wait answers when what the caller waits for is there, or the time is up.
func (a *Agent) wait(w http.ResponseWriter, r *http.Request) {
	var req bothy.WaitRequest
	if err := json.NewDecoder(io.LimitReader(r.Body, maxWaitBody)).Decode(&req); err != nil {
		writeError(w, r, bothy.Errorf(bothy.CodeInvalid, "the request is not JSON").Because(err))
		return
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(req.TimeoutSeconds*float64(time.Second)))
	defer cancel()
	res, err := a.await(ctx, r.Header, req)
	if errors.Is(err, context.DeadlineExceeded) {
		res, err = bothy.WaitResult{TimedOut: true}, nil
	}
	if err != nil {
		writeError(w, r, err)
		return
	}
	res.DurationMS = time.Since(begun).Milliseconds()
	writeJSON(w, http.StatusOK, res)
}

func (a *Agent) await(ctx context.Context, h http.Header, req bothy.WaitRequest) (res bothy.WaitResult, err error) {
	if req.Log != "" && req.Path != "" {
		caller, err := a.request(h)
		if err != nil {
			return res, err
		}
		path, err := files.Resolve(caller.base, req.Path)
		if err != nil {
			return res, err
		}
		l, err := newLineFinder(req)
		if err == nil {
			res.Line, err = a.awaitFileLine(ctx, caller.user, path, l)
		}
		return res, err
	}
	var p process
	if req.PID != 0 {
		if p, err = a.followed(req.PID); err != nil {
			return res, err
		}
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		p.watch(ctx)
	}
	switch {
	case req.Log != "":
		if p.command == nil {
			return res, bothy.Errorf(bothy.CodeProcessNotFound, "process %d was not started through the API, so its output is not known", req.PID).
				WithHint("If it writes to a file, give the file's path.")
		}
		l, err := newLineFinder(req)
		if err == nil {
			res.Line, err = awaitOutputLine(ctx, p, l)
		}
		return res, err
	case req.Port != 0:
		return res, p.until(ctx, func(ctx context.Context) bool { return accepts(ctx, uint16(req.Port)) })
	case req.URL != "":
		ask := asker(req.URL)
		return res, p.until(ctx, func(ctx context.Context) bool {
			res.Status = ask(ctx)
			if req.Status != 0 {
				return res.Status == req.Status
			}
			return res.Status >= 200 && res.Status < 400
		})
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
		return res, ctx.Err()
	}
	res.ExitCode = p.exitCode()
	return res, nil
}

// process is one that a wait depends on, or none.
type process struct {
	pid     int
	command *command.Process // nil if it was not started through the API
	start   int64
	ended   <-chan struct{} // nil, so never ready, without a process
}

// followed finds a process.
func (a *Agent) followed(pid int) (process, error) {
	if c := a.commands.Find(pid); c != nil {
		return process{pid: pid, command: c, ended: c.Done()}, nil
	}
	x, err := procfs.Read(pid)
	if err != nil || x.Dead() {
		return process{}, bothy.Errorf(bothy.CodeProcessNotFound, "there is no process %d", pid).
			WithHint("List the processes to see those that there are; the oldest that ended are forgotten.")
	}
	return process{pid: pid, start: x.StartTicks}, nil
}

// watch notices the end of a process that is not our child.
func (p *process) watch(ctx context.Context) {
	if p.ended != nil {
		return
	}
	ended := make(chan struct{})
	p.ended = ended
	go func() {
		looks := pauses{}
		for {
			if x, err := procfs.Read(p.pid); err != nil || x.Dead() || x.StartTicks != p.start {
				close(ended)
				return
			}
			if looks.wait(ctx, nil) != nil {
				return
			}
		}
	}()
}

func (p *process) exitCode() *int {
	if p.command == nil {
		return nil
	}
	exit, _ := p.command.Exit()
	return &exit.Code
}

// until looks until there is what is waited for.
func (p *process) until(ctx context.Context, there func(context.Context) bool) error {
	looks := pauses{}
	for {
		if there(ctx) {
			return nil
		}
		if err := looks.wait(ctx, p.ended); err != nil {
			return p.tooEarly(err)
		}
	}
}

// errEnded says that the process ended first.
var errEnded = errors.New("the process has ended")

func (p *process) tooEarly(err error) error {
	if err != errEnded {
		return err
	}
	e := bothy.Errorf(bothy.CodeConflict, "process %d ended before what is waited for came", p.pid)
	if code := p.exitCode(); code != nil {
		e = bothy.Errorf(bothy.CodeConflict, "process %d ended with exit code %d before what is waited for came", p.pid, *code)
	}
	return e.WithHint("Its output says why: look at its logs.")
}

// pauses are those between looks; they grow.
type pauses struct{ next time.Duration }

func (p *pauses) wait(ctx context.Context, ended <-chan struct{}) error {
	p.next = min(max(p.next*3/2, firstLook), lastLook)
	t := time.NewTimer(p.next)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ended:
		return errEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}

func accepts(ctx context.Context, port uint16) bool {
	c, err := dialLoopback(ctx, port)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// asker returns a function that makes a request and returns the status of the answer, or 0.
func asker(address string) func(context.Context) int {
	client := &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10,
			// A server inside has a certificate of its own, if any, and gets nothing secret.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context) int {
		ctx, cancel := context.WithTimeout(ctx, askTime)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return 0
		}
		res, err := client.Do(req)
		if err != nil {
			return 0
		}
		res.Body.Close()
		return res.StatusCode
	}
}

// lineFinder finds the first line that matches. It holds at most maxLine bytes.
type lineFinder struct {
	matches func([]byte) bool
	rest    []byte
}

func newLineFinder(req bothy.WaitRequest) (*lineFinder, error) {
	if !req.Regex {
		text := []byte(req.Log)
		return &lineFinder{matches: func(line []byte) bool { return bytes.Contains(line, text) }}, nil
	}
	re, err := regexp.Compile(req.Log)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeInvalid, "log is not a regular expression: %v", err)
	}
	return &lineFinder{matches: re.Match}, nil
}

// feed takes the next bytes. Of a line that is too long, the end is kept.
func (l *lineFinder) feed(p []byte) (string, bool) {
	for len(p) > 0 {
		n := bytes.IndexByte(p, '\n')
		whole := n >= 0
		if !whole {
			n = len(p)
		}
		n = min(n, maxLine)
		l.rest = append(l.rest, p[:n]...)
		if whole = whole && n < len(p) && p[n] == '\n'; whole {
			n++
		}
		p = p[n:]
		if whole || len(l.rest) > maxLine {
			if line, ok := l.last(); ok {
				return line, true
			}
		}
		switch {
		case whole:
			l.rest = l.rest[:0]
		case len(l.rest) > maxLine:
			l.rest = append(l.rest[:0], l.rest[len(l.rest)-maxLine/2:]...)
		}
	}
	return "", false
}

// last looks at what is held, which no line feed ends.
func (l *lineFinder) last() (string, bool) {
	line := bytes.TrimSuffix(l.rest, []byte("\r"))
	if len(line) == 0 && len(l.rest) == 0 || !l.matches(line) {
		return "", false
	}
	return strings.ToValidUTF8(string(line[:min(len(line), shownLine)]), "\ufffd"), true
}

// awaitOutputLine follows both outputs of a command, each with its own lines.
func awaitOutputLine(ctx context.Context, p process, l *lineFinder) (string, error) {
	r := p.command.Attach(0)
	defer r.Close()
	finders := map[command.Stream]*lineFinder{}
	for {
		c, err := r.Next(ctx, nil)
		if err == io.EOF {
			for _, f := range finders {
				if line, ok := f.last(); ok {
					return line, nil
				}
			}
			return "", p.tooEarly(errEnded)
		}
		if err != nil {
			return "", err
		}
		f := finders[c.Stream]
		if f == nil {
			f = &lineFinder{matches: l.matches}
			finders[c.Stream] = f
		}
		if line, ok := f.feed(c.Data); ok {
			return line, nil
		}
	}
}

// awaitFileLine follows a file, which need not exist yet, and may be replaced or cut.
func (a *Agent) awaitFileLine(ctx context.Context, u *account.User, path string, l *lineFinder) (string, error) {
	looks := pauses{}
	var f *os.File
	defer func() {
		if f != nil {
			f.Close()
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		if f == nil {
			next, _, err := a.files.Open(u, path)
			if err != nil && bothy.ErrorCode(err) != bothy.CodeFileNotFound {
				return "", err
			}
			f, l.rest = next, nil
		}
		for f != nil {
			n, err := f.Read(buf)
			if line, ok := l.feed(buf[:n]); ok {
				return line, nil
			}
			if err != nil {
				break
			}
			if ctx.Err() != nil {
				return "", ctx.Err()
			}
		}
		if err := looks.wait(ctx, nil); err != nil {
			return "", err
		}
		if f != nil && replaced(f, path) {
			f.Close()
			f = nil
		}
	}
}

// replaced reports whether there is another file at path by now, or less in it than was read.
func replaced(f *os.File, path string) bool {
	now, err := os.Stat(path)
	if os.IsNotExist(err) {
		return false // a file that was moved away may still be written to
	}
	at, err2 := f.Seek(0, io.SeekCurrent)
	is, err3 := f.Stat()
	return errors.Join(err, err2, err3) != nil || is.Size() < at || !os.SameFile(is, now)
}
