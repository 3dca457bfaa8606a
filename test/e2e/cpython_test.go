package e2e

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// cpythonDiffers are the tests of CPython 3.11 that fail under gVisor and pass under Linux, as
// docs/compatibility.md explains them.
var cpythonDiffers = []struct {
	what string // as on the page
	of   *regexp.Regexp
}{
	{"`test_socket`: the tests of UDP-Lite", regexp.MustCompile(`test_socket\.\w*UDPLITE`)},
	{"`test_socket`: 16 tests named `…CmsgTrunc…`", regexp.MustCompile(`test_socket\.Recvmsg(Into)?RFC3542AncillaryUDP6Test\.test(Single|Second)CmsgTrunc`)},
	{"`test_posix`: `test_sched_rr_get_interval`, `test_setscheduler_only_param`", regexp.MustCompile(`test_sched_rr_get_interval|test_setscheduler_only_param`)},
	{"`test_posix`: `test_sched_priority`", regexp.MustCompile(`test_sched_priority`)},
	{"`test_resource`: `test_prlimit`", regexp.MustCompile(`test_prlimit`)},
}

// CPython's own tests fail in nothing but what the page says.
func TestProgramsCPythonsOwnTests(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(compatibilityPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range cpythonDiffers {
		if !strings.Contains(string(page), "| "+d.what+" |") {
			t.Errorf("docs/compatibility.md lacks %s", d.what)
		}
	}
	if os.Getenv("BOTHY_TEST_PROGRAMS") == "" {
		t.Skip("only `make test-programs` runs CPython's tests, which are downloaded")
	}
	s := stoppedServer(t)
	s.NoPool, s.Args = true, []string{"--trust-host-ca"}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	s.ensureTemplate(t, debian)
	b := s.newBox(t, bothy.SandboxCreate{Template: debian, CPU: 2, MemoryMB: 2048, DiskMB: 8192, TimeoutSeconds: new(int), Network: &bothy.Network{Mode: bothy.NetworkRestricted}})
	if !b.lineWithin(t, installs, "sudo apt-get -q update && sudo DEBIAN_FRONTEND=noninteractive apt-get -q install --yes --no-install-recommends libpython3.11-testsuite") {
		t.FailNow()
	}
	for _, module := range []string{"test_os", "test_posix", "test_signal", "test_resource", "test_selectors", "test_socket", "test_subprocess"} {
		ctx, cancel := context.WithTimeout(t.Context(), installs)
		r, err := b.s.Exec.Exec(ctx, b.id, bothy.ExecRequest{Command: bothy.Command{Line: "mkdir -p /tmp/m && cd /tmp/m && python3 -m unittest test." + module + " >log 2>&1; grep -E '^(FAIL|ERROR): ' log; tail -n 1 log >&2"}})
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(r.Stderr, "OK") && !strings.HasPrefix(r.Stderr, "FAILED") && r.Stdout == "" {
			t.Errorf("%s ended with %s", module, r.Stderr)
		}
	failures:
		for failure := range strings.Lines(r.Stdout) {
			for _, d := range cpythonDiffers {
				if d.of.MatchString(failure) {
					continue failures
				}
			}
			t.Errorf("%s: %s", module, failure)
		}
	}
}
