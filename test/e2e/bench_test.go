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

// TestBench runs a few cases once and checks the report.
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
			t.Errorf("%s succeeded %d of %d times", r.Name, r.OK, r.N)
		case r.Unit == "ms" && *r.P50 <= 0:
			t.Errorf("%s took %v ms", r.Name, *r.P50)
		case !strings.HasPrefix(strings.Join(r.Missing, " "), "runsc: "):
			t.Errorf("%s does not say that runsc is missing: %q", r.Name, r.Missing)
		}
		if r.Name == "leaks" && *r.Value != 0 {
			t.Errorf("%v leftovers were found", *r.Value)
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

// TestBenchWithoutTemplates checks that the error says how to build a template without a server.
func TestBenchWithoutTemplates(t *testing.T) {
	t.Parallel()
	program, err := testserver.Program()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, only := range []string{"exec", "build_cached"} {
		cmd := exec.Command(program, "bench", "-n", "1", "--only", only)
		cmd.Env = append(os.Environ(), "BOTHY_TEMPLATES="+dir)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		err := cmd.Run()
		for _, want := range []string{"there is no template python-3.12-bare", "Templates are taken from " + dir, "bothy up, then bothy template build"} {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("%s: %v: %q does not say %q", only, err, &stderr, want)
			}
		}
		if cmd.ProcessState.ExitCode() != 3 {
			t.Errorf("%s: %v", only, err)
		}
	}
}

// workClients are the programs that fetch the materials of some cases.
var workClients = map[string]string{"work_npm": "npm", "work_go": "apt-get", "work_apt": "apt-get"}

// TestBenchWork runs a small amount of every work case once or twice. The cases themselves check
// that the work was done.
func TestBenchWork(t *testing.T) {
	t.Parallel()
	names := []string{"work_getppid", "work_threads", "work_read", "work_write", "work_sqlite", "work_stat", "work_tar", "work_pipe", "work_spawn"}
	for name, r := range benchWork(t, "0.01", "--only", strings.Join(names, ","), "--against", "host") {
		if host := r.Against["host"]; host == nil || host.OK != 1 || host.P50 <= 0 {
			t.Errorf("%s on the host is %+v", name, host)
		}
		names = slices.DeleteFunc(names, func(n string) bool { return n == name })
	}
	if len(names) > 0 {
		t.Errorf("there is no %v", names)
	}
}

func TestBenchWorkOfAgents(t *testing.T) {
	t.Parallel()
	got := benchWork(t, "0.05", "--only", "work_pip,work_npm,work_go,work_make,work_pytest,work_git,work_apt")
	for _, name := range []string{"work_pip", "work_npm", "work_go", "work_make", "work_pytest", "work_git", "work_apt"} {
		client := workClients[name]
		if _, err := exec.LookPath(client); got[name] == nil && (client == "" || err == nil) {
			t.Errorf("there is no %s", name)
		}
	}
}

type workResult struct {
	Name, Unit string
	N, OK      int
	P50        float64
	Against    map[string]*workResult
}

// benchWork runs bothy bench and returns the results by name.
func benchWork(t *testing.T, scale string, args ...string) map[string]*workResult {
	t.Helper()
	program, err := testserver.Program()
	if err != nil {
		t.Fatal(err)
	}
	templates, err := testserver.Templates()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append([]string{"bench", "--json", "-n", "1", "--work-scale", scale}, args...)...)
	cmd.Env = append(os.Environ(), "BOTHY_TEMPLATES="+templates)
	if python := os.Getenv("BOTHY_TEST_IPYKERNEL"); python != "" { // which has pip
		cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(python)+":"+os.Getenv("PATH"))
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, &stderr)
	}
	var report struct {
		Results []*workResult
		Missing []string
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(report.Missing) > 0 {
		t.Logf("missing: %q", report.Missing)
	}
	all := map[string]*workResult{}
	for _, r := range report.Results {
		if r.N != 1 || r.OK != 1 || r.P50 <= 0 {
			t.Errorf("%+v is incomplete", r)
		}
		all[r.Name] = r
	}
	return all
}
