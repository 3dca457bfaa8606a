package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy/test/testserver"
)

// TestBench measures a few things once, and checks what others read.
func TestBench(t *testing.T) {
	t.Parallel()
	program, err := testserver.Program()
	if err != nil {
		t.Fatal(err)
	}
	templates, err := testserver.Templates()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(program, "bench", "--json", "-n", "1", "--only", "create_exec_pool,create_exec_cold,exec,leaks", "--against", "runsc", "--out", dir)
	cmd.Env = append(os.Environ(), "BOTHY_TEMPLATES="+templates, "HOME="+dir, "PATH=/usr/bin:/bin:/usr/sbin:/sbin")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, &stderr)
	}
	var report struct {
		Host    struct{ CPUs, MemoryMB int }
		Results []struct {
			Name, Unit    string
			N, OK         int
			P50, P95, P99 *float64
			Value         *float64
			LoadBefore    *float64 `json:"load_before"`
			Samples       []float64
			Missing       []string
		}
		Missing []string
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var names []string
	for _, r := range report.Results {
		names = append(names, r.Name)
		switch {
		case r.P50 == nil || r.P95 == nil || r.P99 == nil || r.Value == nil || r.LoadBefore == nil || r.Unit == "" || r.Samples != nil:
			t.Errorf("%s is incomplete, or more than asked for: %+v", r.Name, r)
		case r.N != 1 || r.OK != 1:
			t.Errorf("%s was done %d of %d times", r.Name, r.OK, r.N)
		case r.Unit == "ms" && *r.P50 <= 0:
			t.Errorf("%s took %v ms", r.Name, *r.P50)
		case !strings.HasPrefix(strings.Join(r.Missing, " "), "runsc: "):
			t.Errorf("%s does not say that runsc is missing: %q", r.Name, r.Missing)
		}
		if r.Name == "leaks" && *r.Value != 0 {
			t.Errorf("%v things are left over", *r.Value)
		}
	}
	if want := []string{"create_exec_pool", "create_exec_cold", "exec", "leaks"}; !slices.Equal(names, want) {
		t.Errorf("the results are %v, want %v", names, want)
	}
	if report.Host.CPUs == 0 || len(report.Missing) != 1 {
		t.Errorf("the host is %+v, missing is %q", report.Host, report.Missing)
	}
	for _, pattern := range []string{"*.json", "*.svg", "*.png"} {
		if found, _ := filepath.Glob(filepath.Join(dir, pattern)); len(found) != 1 {
			t.Errorf("%s: %v", pattern, found)
		}
	}
}
