package template

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// enter starts a program with an umask that lets all users read its new files, and without
// inherited file descriptors: with those, mmdebstrap would use descriptor numbers of two
// digits, which dash does not support.
const enter = `umask 022; for f in /proc/self/fd/*; do f=${f##*/}; ((f > 2)) && eval "exec $f>&-"; done; exec "$@"`

// command runs a program, passes each line that it prints to the caller, and puts the last
// lines into the error if it fails. The program and its children get their own mount namespace,
// so that their mounts disappear with them, and are killed when ctx ends.
func (b *build) command(ctx context.Context, env []string, argv ...string) error {
	cmd := exec.CommandContext(ctx, "/bin/bash", append([]string{"-c", enter, "bash"}, argv...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Unshareflags: syscall.CLONE_NEWNS}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	tail := make(chan string)
	go func() { tail <- b.tell(r) }()
	err := cmd.Run()
	w.Close()
	if said := <-tail; err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(argv[0]), err, said)
	}
	return nil
}

// noise are lines of mmdebstrap and pip that are about how we call them.
var noise = regexp.MustCompile(`^(Get:\d|skipping |running --|Looking in |WARNING: Failed to open /usr/local/bin/python|WARNING: The scripts? .* not on PATH|Consider adding this directory)`)

// complaint matches an error line of apt, mmdebstrap or pip.
var complaint = regexp.MustCompile(`^(E|ERROR|error): `)

// tell passes on a program's lines, and returns the first error lines, or else the last lines.
func (b *build) tell(r io.Reader) string {
	const keep = 5
	var last, wrong []string
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimPrefix(strings.TrimSpace(lines.Text()), "I: ")
		if line == "" || noise.MatchString(line) {
			continue
		}
		b.say("%s", line)
		if complaint.MatchString(line) && len(wrong) < keep {
			wrong = append(wrong, line)
		}
		if last = append(last, line); len(last) > keep {
			last = last[1:]
		}
	}
	io.Copy(io.Discard, r)
	if len(wrong) > 0 {
		return strings.Join(wrong, "\n")
	}
	return strings.Join(last, "\n")
}

// hostCommand returns the output of a program in our bundle.
func hostCommand(ctx context.Context, argv ...string) (string, error) {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(argv[0]), err)
	}
	return string(out), nil
}
