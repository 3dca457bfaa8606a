package client_test

import (
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// A time-out ends a program that ignores interrupts, but neither the shell nor programs that it
// started earlier.
func TestTimeoutEndsTheCommandAndNotTheShell(t *testing.T) {
	g := adopted(t)
	plainPath(t, g)
	shell, err := g.CreateContext(t.Context(), bothy.CodeContextCreate{Language: "bash"})
	if err != nil {
		t.Fatal(err)
	}
	in := func(command string, seconds float64) *bothy.CodeResult {
		return run(t, g, bothy.CodeRequest{Code: command, ContextID: shell.ID, TimeoutSeconds: seconds})
	}
	in("cd /tmp; x=41; sleep 600 & early=$!; sleep 0.05", 0)
	for _, stubborn := range []string{
		`bash -c 'trap "" INT; while :; do sleep 0.1; done'; echo after`,
		`bash -c 'trap "" INT; (trap "" INT; sleep 600); sleep 600' | cat; echo after`,
		`while :; do :; done`,
	} {
		res := in(stubborn, 0.2)
		if !res.TimedOut || res.ExitCode == nil || *res.ExitCode == 0 || strings.Contains(res.Stdout, "after") || strings.Contains(res.Hint, "restarted") {
			t.Errorf("%s: %+v, %+v", stubborn, res, res.Error)
		}
	}
	if res := in("echo $PWD $((x + 1)); kill $early && echo alive", 0); res.Stdout != "/tmp 42\nalive\n" {
		t.Errorf("after the time-outs: %+v, %+v", res, res.Error)
	}
}
