package e2e

import (
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// Programs find what they find under Linux: terminals, namespaces, other processes, and /proc.
func TestProgramsFindALinux(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	for _, user := range []string{"user", "root"} {
		pid := strings.TrimSpace(b.sh("user", "sleep 1000 >/dev/null 2>&1 & echo $!"))
		if r := b.python(user, "linux.py", pid); r.Stdout != "done\n" || r.ExitCode != 0 {
			t.Errorf("as %s: %s%s", user, r.Stdout, r.Stderr)
		}
	}
}
