package agents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/internal/random"
)

const (
	// outputLimit is how much of the end of a command's output an agent gets.
	outputLimit = 100 << 10
	// cutMark marks where a part of the output is left out.
	cutMark = "[output truncated]"

	defaultBashTime = 2 * time.Minute
	maxBashTime     = time.Hour

	// scripts is the folder of commands while they run. What is written to the shell is one
	// short line, which arrives atomically.
	scripts = "/tmp/.bothy-agents"
)

// The persistent bash is a process in the sandbox that reads lines. It outlives the server,
// as does its buffered output, so a command is found again by the marks around its output.
// Each call has its own marks, so that output does not contain them by accident.
func begin(nonce string) string { return "<bothy-begin-" + nonce + ">\n" }
func end(nonce string) string   { return "<bothy-end-" + nonce + ":" }
func probe(nonce string) string { return "<bothy-probe-" + nonce + ">\n" }

// errShellEnded means that a command ended the shell it ran in.
var errShellEnded = errors.New("the shell has ended")

// startShell starts the shell, if there is none.
func (s *session) startShell(ctx context.Context, id string) (pid int, from int64, err error) {
	if pid := s.now().Shell; pid != 0 {
		p, err := s.process(ctx, id, func(p bothy.ProcessInfo) bool { return p.PID == pid && p.Running })
		if err != nil {
			return 0, 0, err
		}
		if p != nil {
			return pid, p.OutputEnd, nil
		}
	}
	res, err := s.worker.o.Commands.Exec(ctx, id, bothy.ExecRequest{
		Command: bothy.Command{Args: []string{"bash", "--noprofile", "--norc"}}, Cwd: bothy.DefaultCwd,
		Env: map[string]string{"TERM": "dumb", shellEnv: s.id}, Background: true, MergeStderr: true,
	})
	if err != nil {
		return 0, 0, err
	}
	return res.PID, 0, s.change(ctx, func(r *record) { r.Shell = res.PID })
}

// shellEnv marks the shell among the processes of the sandbox.
const shellEnv = "BOTHY_AGENTS_SESSION"

// checkShell forgets a shell that no longer exists after its sandbox was resumed.
func (s *session) checkShell(ctx context.Context, id string) error {
	pid := s.now().Shell
	p, err := s.process(ctx, id, func(p bothy.ProcessInfo) bool { return p.PID == pid && p.Running && p.Env[shellEnv] == s.id })
	if err != nil || p != nil {
		return err
	}
	return s.change(ctx, func(r *record) { r.Shell = 0 })
}

// endShell kills the shell and everything that runs in it.
func (s *session) endShell(ctx context.Context) error {
	r := s.now()
	if r.Shell == 0 || r.SandboxID == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	err := s.worker.o.Commands.Signal(ctx, r.SandboxID, r.Shell, 9)
	if c := bothy.ErrorCode(err); err != nil && c != bothy.CodeProcessNotFound && c != bothy.CodeSandboxEnded && c != bothy.CodeSandboxNotFound {
		return err
	}
	return s.change(ctx, func(r *record) { r.Shell = 0 })
}

// bash runs a command in the shell, or continues one that an earlier server started.
func (s *session) bash(ctx context.Context, id, call, command string, timeout time.Duration) (result string, failed bool, err error) {
	c := s.call(call)
	if c.Process != 0 {
		found, err := s.reconnect(ctx, id, c)
		if err != nil {
			return "", false, err
		}
		switch found {
		case gone:
			return "the shell of this command is gone, with what ran in it; the command was not run again, and may have done its work in part", true, nil
		case begun:
			return s.follow(ctx, id, c)
		}
	}
	pid, from, err := s.startShell(ctx, id)
	if err != nil {
		return "", false, err
	}
	c = callState{Process: pid, From: from, Nonce: random.Hex(12), Seconds: timeout.Seconds()}
	script := scripts + "/" + c.Nonce
	if _, err := s.worker.o.Files.Write(ctx, id, script, strings.NewReader(command+"\n"), bothy.WriteOptions{Mode: 0o600}); err != nil {
		return "", false, err
	}
	if err := s.note(ctx, call, c); err != nil {
		return "", false, err
	}
	_ = failpoint.Hit("agents.noted")
	line := fmt.Sprintf("printf '%%s\\n' '%s'; { . %s; } </dev/null; printf '%%s%%d>\\n' '%s' $?; rm -f %s\n",
		strings.TrimSpace(begin(c.Nonce)), script, end(c.Nonce), script)
	if err := s.worker.o.Commands.Stdin(ctx, id, pid, []byte(line), false); err != nil {
		return "", false, err
	}
	_ = failpoint.Hit("agents.given")
	return s.follow(ctx, id, c)
}

// What may have become of a command.
type found int

const (
	never found = iota // it did not start
	begun
	gone // its shell is gone
)

// reconnect finds out what became of a command. It makes the shell print a probe, which comes
// after everything that it was given before.
func (s *session) reconnect(ctx context.Context, id string, c callState) (found, error) {
	p, err := s.process(ctx, id, func(p bothy.ProcessInfo) bool { return p.PID == c.Process })
	if err != nil {
		return never, err
	}
	if p == nil || p.Env[shellEnv] != s.id {
		return gone, s.change(ctx, func(r *record) { r.Shell = 0 })
	}
	mark := probe(random.Hex(12))
	if p.Running {
		err := s.worker.o.Commands.Stdin(ctx, id, c.Process, []byte("printf '%s\\n' '"+strings.TrimSpace(mark)+"'\n"), false)
		if err != nil {
			return never, err
		}
	}
	var seen []byte
	state := never
	err = s.worker.o.Commands.Output(ctx, id, c.Process, c.From, func(e bothy.ExecEvent) error {
		data, err := e.Bytes()
		if err != nil {
			return err
		}
		if len(seen) == 0 && e.Offset > c.From {
			state = begun // so much that its beginning is no longer held
		}
		seen = append(seen, data...)
		if bytes.Contains(seen, []byte(begin(c.Nonce))) {
			state = begun
		}
		if state == begun || e.IsFinal || bytes.Contains(seen, []byte(mark)) {
			return errFull
		}
		return nil
	})
	if errors.Is(err, errFull) {
		err = nil
	}
	return state, err
}

// follow waits for the end of a command. If its time is up, its shell is killed.
func (s *session) follow(ctx context.Context, id string, c callState) (string, bool, error) {
	limited, cancel := context.WithTimeout(ctx, time.Duration(c.Seconds*float64(time.Second)))
	defer cancel()
	t := tail{nonce: c.Nonce}
	err := s.worker.o.Commands.Output(limited, id, c.Process, c.From, t.take)
	switch {
	case t.ended:
		if t.code != 0 {
			return fmt.Sprintf("%s\nexit code: %d", t.text(), t.code), true, nil
		}
		return t.text(), false, nil
	case ctx.Err() != nil:
		if cut(ctx) {
			err = s.endShell(ctx)
		}
		return "", true, errors.Join(ctx.Err(), err)
	case limited.Err() != nil:
		if err := s.endShell(ctx); err != nil {
			return "", false, err
		}
		return t.text() + "\n[timed out]\nsession restarted after timeout", true, nil
	case err == nil || errors.Is(err, errShellEnded):
		if err := s.change(ctx, func(r *record) { r.Shell = 0 }); err != nil {
			return "", false, err
		}
		return strings.TrimPrefix(t.text()+"\nbash session terminated; the next command gets a new one", "\n"), true, nil
	}
	return "", false, err
}

// cut reports whether a call that ends with ctx must also end in the sandbox. If the server is
// stopping, it continues, for the next server to wait for.
func cut(ctx context.Context) bool {
	why := context.Cause(ctx)
	return !errors.Is(why, errClosing) && !errors.Is(why, errReplaced)
}

// A tail keeps the end of a command's output.
type tail struct {
	nonce string

	buf   []byte
	begun bool
	lost  bool // some of the output is left out
	ended bool
	code  int
}

var endCode = regexp.MustCompile(`^(\d+)>\n`)

// take adds a piece of the shell's output.
func (t *tail) take(e bothy.ExecEvent) error {
	data, err := e.Bytes()
	if err != nil {
		return err
	}
	t.buf = append(t.buf, data...)
	if !t.begun {
		if _, after, ok := bytes.Cut(t.buf, []byte(begin(t.nonce))); ok {
			t.begun, t.buf = true, append([]byte(nil), after...)
		}
	}
	if i := bytes.LastIndex(t.buf, []byte(end(t.nonce))); i >= 0 {
		if m := endCode.FindSubmatch(t.buf[i+len(end(t.nonce)):]); m != nil {
			t.ended, t.buf = true, t.buf[:i]
			_, _ = fmt.Sscan(string(m[1]), &t.code)
			return errFull
		}
	}
	t.trim(outputLimit + 256) // a mark at the end may be incomplete
	if e.IsFinal {
		return errShellEnded
	}
	return nil
}

func (t *tail) trim(limit int) {
	if over := len(t.buf) - limit; over > 0 {
		t.buf, t.lost = append(t.buf[:0], t.buf[over:]...), true
	}
}

var controls = regexp.MustCompile(`\x1b\[[0-9;?]*[ -/]*[@-~]`)

// text is the output as text.
func (t *tail) text() string {
	if t.nonce != "" && !t.begun && !t.lost && !t.ended {
		return "" // only what was printed before the command
	}
	t.trim(outputLimit)
	b := controls.ReplaceAll(t.buf, nil)
	b = bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n"))
	s := strings.ToValidUTF8(string(b), "\uFFFD")
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	if t.lost {
		return cutMark + "\n" + s
	}
	return s
}
