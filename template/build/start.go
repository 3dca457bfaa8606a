package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

const (
	// startTag begins the tag of an image whose program is being started.
	startTag = "starting-"
	// readyEvery is how often the program's readiness is checked.
	readyEvery = 100 * time.Millisecond
	maxStart   = 3600
	// settle is how long to wait once a program is ready before its memory is saved, so that
	// the connections of the checks are closed.
	settle = 300 * time.Millisecond
)

// checkStart validates a request's start.
func checkStart(s *bothy.TemplateStart) error {
	if s == nil {
		return nil
	}
	if strings.TrimSpace(s.Command) == "" {
		return bothy.Errorf(bothy.CodeInvalid, "start has no command").WithHint("Give start.command, or omit start.")
	}
	if s.TimeoutSeconds < 0 || s.TimeoutSeconds > maxStart {
		return bothy.Errorf(bothy.CodeInvalid, "start.timeout_seconds is %d", s.TimeoutSeconds).WithHint("Give a value from 1 to %d.", maxStart)
	}
	r := s.Ready
	if r == nil {
		return nil
	}
	ways := 0
	for _, given := range []bool{r.Port != 0, r.URL != "", r.File != "", r.Command != ""} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return bothy.Errorf(bothy.CodeInvalid, "start.ready has %d conditions", ways).
			WithHint("Give one of port, url, file and command.")
	}
	if r.File != "" && !strings.HasPrefix(r.File, "/") {
		return bothy.Errorf(bothy.CodeInvalid, "start.ready.file is %q", r.File).WithHint("Give an absolute path.")
	}
	if r.URL != "" {
		_, _, err := readyURL(r.URL)
		return err
	}
	if r.Port < 0 || r.Port > 65535 || r.Port == bothy.GuestPort {
		return bothy.Errorf(bothy.CodeInvalid, "start.ready.port is %d", r.Port).WithHint("Give a port from 1 to 65535 other than %d.", bothy.GuestPort)
	}
	return nil
}

// readyURL parses a URL, which must be of a server in the sandbox.
func readyURL(text string) (*url.URL, uint16, error) {
	u, err := url.Parse(text)
	wrong := err != nil || u.Scheme != "http" || !slices.Contains([]string{"localhost", "127.0.0.1", "0.0.0.0", "[::1]", "::1"}, u.Hostname())
	if wrong {
		return nil, 0, bothy.Errorf(bothy.CodeInvalid, "start.ready.url is %q", text).
			WithHint("Give an address in the sandbox, such as http://localhost:8000/health.")
	}
	port, err := strconv.ParseUint(cmp.Or(u.Port(), "80"), 10, 16)
	if err != nil || port == 0 || port == bothy.GuestPort {
		return nil, 0, bothy.Errorf(bothy.CodeInvalid, "start.ready.url has the port %s", u.Port()).WithHint("Give a port from 1 to 65535 other than %d.", bothy.GuestPort)
	}
	return u, uint16(port), nil
}

// starting is a program that is started in a sandbox of the finished image.
type starting struct {
	j       *job
	t       *store.Template
	want    bothy.TemplateStart
	sandbox string
	pid     int
}

// start makes a template from the image with the program running. The image has a temporary tag
// meanwhile, so that the template's name only moves on success.
func (j *job) start(ctx context.Context, t *store.Template, img image) (*bothy.Template, error) {
	final := t.Name
	t.Start = j.req.Start
	drop, err := j.adoptAside(ctx, t, startTag, img)
	if err != nil {
		return nil, err
	}
	defer drop()
	s := &starting{j: j, t: t, want: *j.req.Start}
	j.say(bothy.BuildEvent{Step: "start", Message: j.masked.Replace(s.want.Command)})
	end, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	if err := s.await(ctx); err != nil {
		return nil, err
	}
	return j.b.o.Sandboxes.CreateTemplate(ctx, s.sandbox, bothy.TemplateCapture{Name: final, Description: t.Description, Memory: true})
}

func (s *starting) patience() time.Duration {
	return time.Duration(cmp.Or(s.want.TimeoutSeconds, bothy.DefaultStartTimeoutSeconds)) * time.Second
}

// enter starts the sandbox.
func (s *starting) enter(ctx context.Context) (end func(), err error) {
	req := s.j.sandbox(s.t.Ref(), s.j.network(Step{}), s.j.lifetime(int(s.patience().Seconds())))
	req.CPU, req.MemoryMB, req.DiskMB = s.want.CPU, s.want.MemoryMB, s.want.DiskMB
	if err := s.j.take(ctx); err != nil {
		return nil, err
	}
	sb, err := s.j.b.o.Sandboxes.StartFrom(ctx, req, s.t, "")
	if err != nil {
		s.j.give()
		return nil, err
	}
	s.sandbox = sb.ID
	return func() {
		s.j.endSandbox(ctx, sb.ID)
		s.j.give()
	}, nil
}

func (s *starting) run(ctx context.Context) error {
	r, err := s.j.b.o.Sandboxes.Exec(ctx, s.sandbox, bothy.ExecRequest{
		Command: bothy.Command{Args: []string{"/bin/sh", "-c", s.want.Command}}, Cwd: s.want.Cwd, User: s.want.User, Background: true,
	})
	if err != nil {
		return fmt.Errorf("start the program: %w", err)
	}
	s.pid = r.PID
	return nil
}

// await waits until the program is ready. If it failed it never will be; if it exited
// successfully it may have left a daemon.
func (s *starting) await(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, s.patience())
	defer cancel()
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	for {
		ready, err := s.ready(waiting)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil && waiting.Err() == nil {
			return err
		}
		if err := s.look(ctx); err != nil {
			return err
		}
		if ready {
			return wait(ctx, settle)
		}
		select {
		case <-waiting.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return s.failed(ctx, fmt.Sprintf("was not ready within %.0f seconds", s.patience().Seconds()),
				"Give it longer with start.timeout_seconds, or mend what start.ready waits for: "+s.j.masked.Replace(awaited(s.want.Ready))+".")
		case <-tick.C:
		}
	}
}

// awaited describes the condition for being ready.
func awaited(r *bothy.TemplateReady) string {
	switch {
	case r == nil:
		return "that it runs"
	case r.Port != 0:
		return fmt.Sprintf("that something listens on port %d", r.Port)
	case r.URL != "":
		return "that " + r.URL + " answers"
	case r.File != "":
		return "that the file " + r.File + " exists"
	}
	return fmt.Sprintf("that the command %q succeeds", r.Command)
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// look returns an error if the program has failed.
func (s *starting) look(ctx context.Context) error {
	list, err := s.j.b.o.Sandboxes.Processes(ctx, s.sandbox)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(p bothy.ProcessInfo) bool { return p.PID == s.pid })
	if i < 0 || list[i].Running || list[i].ExitCode == nil || *list[i].ExitCode == 0 {
		return nil
	}
	return s.failed(ctx, fmt.Sprintf("ended with exit code %d", *list[i].ExitCode), "Fix start.command; its output is in the build's log.")
}

// ready reports whether the program is ready.
func (s *starting) ready(ctx context.Context) (bool, error) {
	want, boxes := s.want.Ready, s.j.b.o.Sandboxes
	switch {
	case want == nil:
		return true, nil
	case want.Port != 0:
		c, err := boxes.DialPort(ctx, s.sandbox, uint16(want.Port))
		if err != nil {
			return false, nil
		}
		return true, c.Close()
	case want.URL != "":
		return s.answers(ctx, want.URL)
	case want.File != "":
		_, err := s.j.b.o.Files.Stat(ctx, s.sandbox, want.File, "root")
		if bothy.ErrorCode(err) == bothy.CodeFileNotFound {
			err = nil
			return false, err
		}
		return err == nil, err
	}
	r, err := boxes.Exec(ctx, s.sandbox, bothy.ExecRequest{
		Command: bothy.Command{Args: []string{"/bin/sh", "-c", want.Command}}, Cwd: s.want.Cwd, User: s.want.User, TimeoutSeconds: s.patience().Seconds(),
	})
	return err == nil && r.ExitCode == 0, err
}

func (s *starting) answers(ctx context.Context, text string) (bool, error) {
	u, port, err := readyURL(text)
	if err != nil {
		return false, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return false, err
	}
	res, err := s.j.b.o.Sandboxes.FetchPort(req, s.sandbox, port)
	if err != nil {
		return false, nil
	}
	return res.StatusCode < 400, res.Body.Close()
}

// failed is the error for a program that did not start, with the end of its output.
func (s *starting) failed(ctx context.Context, how, hint string) error {
	said := &lines{say: func(line string) {
		s.j.say(bothy.BuildEvent{Step: "start", Message: s.j.masked.Replace(line)})
	}}
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	// The output of a running program never ends.
	err := s.j.b.o.Sandboxes.Output(short, s.sandbox, s.pid, 0, func(e bothy.ExecEvent) error {
		data, _ := e.Bytes() // best effort
		said.write(data)
		return nil
	})
	said.flush()
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		s.j.b.log.Info("cannot read the output of a program that did not start", "build", s.j.id, "error", err)
	}
	return bothy.Errorf(bothy.CodeTemplateInvalid, "the started program %s: %s", how, s.j.shown(s.want.Command)).WithHint("%s", hint)
}
