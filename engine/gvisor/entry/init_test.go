//go:build gvisorpatched

package entry

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestPackagesTakeLittleToStart asks the runtime what the library's packages allocate before main, which
// every sentry repeats.
func TestPackagesTakeLittleToStart(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	allocated := map[string]int{}
	for line := range strings.Lines(string(out)) {
		// init PACKAGE @1.2 ms, 0.003 ms clock, 456 bytes, 7 allocs
		if f := strings.Fields(line); len(f) == 11 && f[0] == "init" {
			allocated[strings.TrimPrefix(f[1], "gvisor.dev/gvisor/")], _ = strconv.Atoi(f[7])
		}
	}
	const tables = "pkg/sentry/syscalls/linux"
	if got, most := allocated[tables], 128<<10; got > most {
		t.Errorf("%s allocates %d bytes, at most %d are allowed", tables, got, most)
	}
	if allocated[tables] == 0 {
		t.Errorf("the runtime reports nothing about the library: %s", out)
	}
}
