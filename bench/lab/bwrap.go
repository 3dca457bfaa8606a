package lab

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/bothy-dev/bothy/bench"
)

// Bwrap is bubblewrap, which confines a command to namespaces of the host's own kernel.
type Bwrap struct{ binary, tree string }

// Bwrap runs commands on the template's files.
func (l *Lab) Bwrap() (*Bwrap, error) {
	binary, err := exec.LookPath("bwrap")
	if err != nil {
		return nil, &Missing{"bwrap", "there is no such program in the PATH"}
	}
	tree, err := l.Tree()
	return &Bwrap{binary, tree}, err
}

// Version returns the program's own description.
func (b *Bwrap) Version() string { return firstLine(b.binary, "--version") }

// firstLine is the first line of what a command prints.
func firstLine(name string, args ...string) string {
	out, _ := exec.Command(name, args...).Output()
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

// RunOnce is a subject: one command in namespaces of its own, which end with it.
func (b *Bwrap) RunOnce() bench.Subject {
	return bench.RunOf("bwrap", func(context.Context) error {
		out, err := exec.Command(b.binary, "--ro-bind", b.tree, "/", "--proc", "/proc", "--dev", "/dev",
			"--unshare-all", "--die-with-parent", "/bin/true").CombinedOutput()
		if err != nil {
			return fmt.Errorf("bwrap: %w: %s", err, out)
		}
		return nil
	})
}
