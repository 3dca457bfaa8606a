package e2e

import (
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// TestCommandsStartAlike checks that a command has the same environment with an input and without, which
// the guest starts in different ways.
func TestCommandsStartAlike(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	b.write("/workspace/world.py", `
import fcntl, os, signal, stat
print("user", os.getresuid(), os.getresgid(), sorted(os.getgroups()))
print("session", os.getsid(0) == os.getpgid(0) == os.getpid(), os.getppid())
print("folder", os.getcwd(), "umask", oct(os.umask(0)))
print("files", sorted(int(n) for n in os.listdir("/proc/self/fd") if n != "3"))
for fd in 1, 2:
    print("output", fd, stat.S_ISFIFO(os.fstat(fd).st_mode), fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_NONBLOCK | os.O_ACCMODE))
for line in open("/proc/self/status"):
    if line.startswith(("Cap", "NoNewPrivs", "Seccomp", "SigBlk", "SigIgn")):
        print(line.strip())
print("blocked", signal.pthread_sigmask(signal.SIG_BLOCK, []))
print("ignored", [s for s in signal.valid_signals() if signal.getsignal(s) == signal.SIG_IGN and s not in (signal.SIGPIPE, signal.SIGXFSZ)])
print(open("/proc/self/limits").read())
print("environment", sorted(k for k in os.environ))
`)
	for _, user := range []string{"", "root"} {
		req := bothy.ExecRequest{Command: bothy.Command{Args: []string{"python3", "world.py"}}, User: user}
		plain := b.try(req)
		req.Stdin = "something"
		fed := b.try(req)
		if plain.ExitCode != 0 || plain.Stdout != fed.Stdout || plain.Stderr != "" {
			t.Errorf("user %q: a plain command sees\n%s%s\nand one with an input\n%s%s", user, plain.Stdout, plain.Stderr, fed.Stdout, fed.Stderr)
		}
		if !strings.Contains(plain.Stdout, "session True 1\n") || !strings.Contains(plain.Stdout, "files [0, 1, 2]\n") {
			t.Errorf("user %q: %s", user, plain.Stdout)
		}
	}
}

// TestStartsThatFail checks that a command that cannot be started fails with a reason and leaves nothing
// behind.
func TestStartsThatFail(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	b.sh("root", `mkdir -p /workspace/bin /shut && chmod 700 /shut && cd /workspace/bin &&
		echo text >plain && printf '#!/no/such/shell\n' >script && printf '\177ELF broken' >broken && printf 'no first line' >odd &&
		chmod 755 script broken odd && chmod 644 plain`)
	// The list is made with shell built-ins only: a program would be in it at some times and not at others.
	processes := func() []string {
		return strings.Fields(b.sh("root", `for p in /proc/[0-9]*; do read -r pid name state rest <$p/stat && echo "$pid$name$state"; done`))
	}
	before := processes()
	for range 20 {
		for name, c := range map[string]struct {
			argv []string
			cwd  string
			code bothy.Code
		}{
			"unknown program":     {[]string{"nothing-of-that-name"}, "", bothy.CodeCommandNotFound},
			"unknown path":        {[]string{"/no/such/program"}, "", bothy.CodeCommandNotFound},
			"not executable":      {[]string{"/workspace/bin/plain"}, "", bothy.CodeCommandInvalid},
			"no interpreter":      {[]string{"/workspace/bin/script"}, "", bothy.CodeCommandInvalid},
			"a folder":            {[]string{"/workspace/bin"}, "", bothy.CodeCommandInvalid},
			"not a program":       {[]string{"/workspace/bin/broken"}, "", bothy.CodeCommandInvalid},
			"no first line":       {[]string{"/workspace/bin/odd"}, "", bothy.CodeCommandInvalid},
			"unknown folder":      {[]string{"true"}, "/no/such/folder", bothy.CodeInvalid},
			"a file for a folder": {[]string{"true"}, "/workspace/bin/plain", bothy.CodeInvalid},
			"a shut folder":       {[]string{"true"}, "/shut", bothy.CodeInvalid},
		} {
			req := bothy.ExecRequest{Command: bothy.Command{Args: c.argv}, Cwd: c.cwd}
			_, plain := b.exec(req)
			req.Stdin = "something"
			_, fed := b.exec(req)
			if bothy.ErrorCode(plain) != c.code || bothy.ErrorCode(fed) != c.code {
				t.Errorf("%s: plain %v, with an input %v; want %s", name, plain, fed, c.code)
			}
		}
		if t.Failed() {
			break
		}
	}
	if after := processes(); len(after) != len(before) {
		t.Errorf("the processes were %q, and are %q", before, after)
	}
}
