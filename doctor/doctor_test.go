package doctor

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

func TestMain(m *testing.M) {
	if IsProbe() {
		os.Exit(RunProbe())
	}
	os.Exit(m.Run())
}

func testHost(t *testing.T) *Host {
	t.Helper()
	home := t.TempDir()
	return NewHost(home, filepath.Join(home, "templates"), "127.0.0.1:0")
}

// write makes a file and the folders above it.
func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// expect checks the outcome of a check and a word of what it says.
func expect(t *testing.T, r Result, status Status, word string) {
	t.Helper()
	if r.Status != status || !strings.Contains(r.Detail+" "+r.Fix, word) {
		t.Errorf("got %s %q (%s), want %s with %q", r.Status, r.Detail, r.Fix, status, word)
	}
	if status == OK && r.Fix != "" {
		t.Errorf("nothing is wrong, but the fix is %q", r.Fix)
	}
	if status != OK && r.Fix == "" {
		t.Errorf("%q does not say what to do", r.Detail)
	}
}

func TestRunReportsEveryResult(t *testing.T) {
	checks := []Check{
		{"fine", func(context.Context) Result { return ok("Good.") }},
		{"so-so", func(context.Context) Result { return warn("Hm.", "Look.") }},
	}
	var seen []string
	report := Run(t.Context(), checks, func(r Result) { seen = append(seen, r.Name) })
	if !report.OK || len(report.Results) != 2 || strings.Join(seen, " ") != "fine so-so" {
		t.Errorf("a warning is not a failure: %+v, seen %v", report, seen)
	}
	checks = append(checks, Check{"bad", func(context.Context) Result { return fail("No.", "Do.") }})
	if Run(t.Context(), checks, func(Result) {}).OK {
		t.Error("a failed check must make the report fail")
	}
}

func TestRootIsNeeded(t *testing.T) {
	h := testHost(t)
	h.euid = 1000
	expect(t, h.checkRoot(t.Context()), Fail, "sudo")
	h.euid = 0
	expect(t, h.checkRoot(t.Context()), OK, "root")
}

func TestKernelVersions(t *testing.T) {
	for release, want := range map[string]Status{
		"6.1.0-18-amd64": OK, "5.4.0": OK, "5.3.9": Warn, "4.15.0": Warn, "4.14.77": Fail, "3.10.0-1160.el7": Fail, "": Warn,
	} {
		h := testHost(t)
		h.kernel = func() string { return release }
		if got := h.checkKernel(t.Context()); got.Status != want {
			t.Errorf("%q: got %s %q, want %s", release, got.Status, got.Detail, want)
		}
	}
}

func TestUserNamespaces(t *testing.T) {
	h := testHost(t)
	h.proc = t.TempDir()
	expect(t, h.checkUserNamespaces(t.Context()), Fail, "CONFIG_USER_NS")
	file := filepath.Join(h.proc, "sys/user/max_user_namespaces")
	write(t, file, "0\n")
	expect(t, h.checkUserNamespaces(t.Context()), Fail, "sysctl")
	write(t, file, "15000\n")
	expect(t, h.checkUserNamespaces(t.Context()), OK, "15000")
}

func TestMemory(t *testing.T) {
	h := testHost(t)
	h.proc = t.TempDir()
	for available, want := range map[string]Status{"8000000": OK, "900000": Warn, "100000": Fail} {
		write(t, filepath.Join(h.proc, "meminfo"), "MemTotal: 16000000 kB\nMemFree: 1 kB\nMemAvailable: "+available+" kB\n")
		expect(t, h.checkMemory(t.Context()), want, "of 15625 MiB")
	}
}

func TestClockInThePast(t *testing.T) {
	h := testHost(t)
	h.now = func() time.Time { return time.Unix(0, 0) }
	expect(t, h.checkClock(t.Context()), Fail, "1970")
	h.now = time.Now
	if r := h.checkClock(t.Context()); r.Status == Fail {
		t.Errorf("now is not in the past: %+v", r)
	}
}

func TestCgroupsVersion2(t *testing.T) {
	h := testHost(t)
	h.cgroups = t.TempDir()
	write(t, filepath.Join(h.cgroups, "cgroup.controllers"), "cpuset cpu io pids\n")
	expect(t, h.checkCgroups(t.Context()), Fail, "memory")
	write(t, filepath.Join(h.cgroups, "cgroup.controllers"), "cpuset cpu io memory pids\n")
	expect(t, h.checkCgroups(t.Context()), OK, "v2")
	left, _ := filepath.Glob(filepath.Join(h.cgroups, "bothy-doctor-*"))
	if len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCgroupsVersion1(t *testing.T) {
	h := testHost(t)
	h.cgroups = t.TempDir()
	write(t, filepath.Join(h.cgroups, "cpu/cgroup.procs"), "")
	write(t, filepath.Join(h.cgroups, "memory/cgroup.procs"), "")
	expect(t, h.checkCgroups(t.Context()), Fail, "pids")
	write(t, filepath.Join(h.cgroups, "pids/cgroup.procs"), "")
	expect(t, h.checkCgroups(t.Context()), OK, "v1")
}

func TestMissingToolsComeWithTheLineThatInstallsThem(t *testing.T) {
	h := testHost(t)
	h.lookPath = func(name string) (string, error) { return "", errors.New("not found") }
	r := h.checkTools(t.Context())
	expect(t, r, Fail, "mmdebstrap")
	if want := "Run: apt-get install -y --no-install-recommends erofs-utils mmdebstrap"; r.Fix != want {
		t.Errorf("fix is %q, want %q", r.Fix, want)
	}
	// A host with templates does not need it.
	addTemplate(t, h)
	expect(t, h.checkTools(t.Context()), Warn, "mmdebstrap")
}

func TestToolThatIsTooOld(t *testing.T) {
	old := filepath.Join(t.TempDir(), "mkfs.erofs")
	write(t, old, "#!/bin/sh\necho 'mkfs.erofs: invalid extended option noinline_data' >&2\nexit 1\n")
	if err := os.Chmod(old, 0o755); err != nil {
		t.Fatal(err)
	}
	h := testHost(t)
	h.lookPath = func(string) (string, error) { return old, nil }
	expect(t, h.checkTools(t.Context()), Fail, "invalid extended option")
}

func TestPortTakenByAnotherProgram(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stranger := &http.Server{Handler: http.NotFoundHandler()}
	go func() { _ = stranger.Serve(l) }()
	defer stranger.Close()
	h := testHost(t)
	h.Listen = l.Addr().String()
	expect(t, h.checkPort(t.Context()), Fail, "doctor.test (pid ")
}

func TestPortTakenByBothy(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	h := testHost(t)
	h.Listen = server.Listener.Addr().String()
	expect(t, h.checkPort(t.Context()), OK, "A Bothy server answers")
}

func TestFreePort(t *testing.T) {
	expect(t, testHost(t).checkPort(t.Context()), OK, "free")
}

func TestDiskOfAFolderThatIsNotThereYet(t *testing.T) {
	h := testHost(t)
	h.Home = filepath.Join(h.Home, "not", "yet")
	if r := h.checkDisk(t.Context()); !strings.Contains(r.Detail, "MiB are free in "+filepath.Dir(filepath.Dir(h.Home))) {
		t.Errorf("got %+v", r)
	}
}

func TestDiskWithoutUnnamedFiles(t *testing.T) {
	h := testHost(t)
	h.Home = "/proc"
	expect(t, h.checkDisk(t.Context()), Fail, "unnamed file")
}

func TestTemplates(t *testing.T) {
	h := testHost(t)
	expect(t, h.checkTemplates(t.Context()), Warn, "bothy template build")
	write(t, filepath.Join(h.Templates, "half-done", "current", "manifest.json"), `{"name": "half-done"}`)
	expect(t, h.checkTemplates(t.Context()), Warn, "no templates")
	addTemplate(t, h)
	expect(t, h.checkTemplates(t.Context()), OK, "debian-12")
}

func addTemplate(t *testing.T, h *Host) {
	t.Helper()
	folder := filepath.Join(h.Templates, "debian-12", "current")
	write(t, filepath.Join(folder, "manifest.json"), `{"name": "debian-12"}`)
	write(t, filepath.Join(folder, "rootfs.erofs"), "an image")
}

func TestEngineThatDoesNotStart(t *testing.T) {
	p := StartProbe{Engine: "gvisor", Start: func(context.Context) (Started, error) {
		return Started{}, bothy.Errorf(bothy.CodeEngine, "the sentry ended with exit code 1").WithHint("Look at the log.")
	}}
	r := p.check(t.Context())
	expect(t, r, Fail, "the sentry ended with exit code 1")
	if r.Fix != "Look at the log." {
		t.Errorf("the error's own hint is better than %q", r.Fix)
	}
	p.Start = func(context.Context) (Started, error) { return Started{Took: 42 * time.Millisecond}, nil }
	expect(t, p.check(t.Context()), OK, "42 ms")
}

func TestAnOptionalEngineThatIsNotInstalledIsAWarning(t *testing.T) {
	fails := bothy.Errorf(bothy.CodeEngineMissing, "QEMU is not installed").WithHint("Run: sudo bothy doctor --fix")
	p := StartProbe{Engine: "microvm", Optional: true, Start: func(context.Context) (Started, error) { return Started{}, fails }}
	expect(t, p.check(t.Context()), Warn, "doctor --fix")
	p.Optional = false
	expect(t, p.check(t.Context()), Fail, "QEMU is not installed")
	p.Optional = true
	p.Start = func(context.Context) (Started, error) {
		return Started{}, bothy.Errorf(bothy.CodeEngine, "the kernel panicked")
	}
	expect(t, p.check(t.Context()), Fail, "the kernel panicked")
}

func TestAnEmulatedMachineIsAWarning(t *testing.T) {
	p := StartProbe{Engine: "microvm", Start: func(context.Context) (Started, error) {
		return Started{Took: 2 * time.Second, Detail: "It was emulated.", Slow: "Use a host with KVM."}, nil
	}}
	expect(t, p.check(t.Context()), Warn, "2000 ms, ran and ended. It was emulated. Use a host with KVM.")
}

func TestQEMUIsNoToolThatEveryHostNeeds(t *testing.T) {
	h := testHost(t)
	h.lookPath = func(name string) (string, error) {
		if name == "qemu-system-x86_64" {
			return "", errors.New("not found")
		}
		return "/bin/true", nil
	}
	if all, vms := h.MissingPackages(), h.MissingEnginePackages(); len(all) != 0 || strings.Join(vms, " ") != "qemu-system-x86" {
		t.Errorf("missing %v, and for virtual machines %v", all, vms)
	}
}

func TestProbesAreChecks(t *testing.T) {
	h := testHost(t)
	h.Probes = []StartProbe{{Engine: "gvisor"}}
	checks := h.Checks()
	if last := checks[len(checks)-1].Name; last != "engine gvisor" {
		t.Errorf("the last check is %q", last)
	}
}

func TestUnknownProbeFails(t *testing.T) {
	t.Setenv(probeVariable, "nonsense")
	if RunProbe() == 0 {
		t.Error("an unknown probe must fail")
	}
}

// TestThisHost tries the probes for real. They need root, as the server does.
func TestThisHost(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	h := testHost(t)
	expect(t, h.checkTap(t.Context()), OK, "tap")
	expect(t, h.checkTracing(t.Context()), OK, "traced")
	if _, err := os.Stat("/sys/class/net/bothy0"); err == nil {
		t.Error("the tap was made in the host's own namespace")
	}
}
