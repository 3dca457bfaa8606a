package e2e

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/test/testserver"
)

// asks is a program that asks the processor for its features with CPUID.
const asks = `import ctypes, mmap
code = bytes.fromhex("5389f889f14989d00fa241890041895804418948084189500c5bc3")
page = mmap.mmap(-1, len(code), prot=7)
page.write(code)
ask = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
def cpuid(leaf):
    said = (ctypes.c_uint32 * 4)()
    ask(leaf, 0, ctypes.addressof(said))
    return said
print("avx" if cpuid(1)[2] >> 28 & 1 else "", "avx2" if cpuid(7)[1] >> 5 & 1 else "", "avx512f" if cpuid(7)[1] >> 16 & 1 else "")
`

// flags returns the processor features that a sandbox sees in /proc/cpuinfo.
func (b *box) flags() []string {
	b.Helper()
	_, text, _ := strings.Cut(b.sh("", "grep -m1 ^flags /proc/cpuinfo"), ":")
	return strings.Fields(text)
}

// leveled is a server whose sandboxes see a lower level of the processor.
func leveled(t *testing.T, level string) *server {
	t.Helper()
	kernels, err := kernelsFolder()
	if err != nil {
		t.Fatal(err)
	}
	s := stoppedServer(t)
	s.NoPool, s.Env, s.Settings = true, []string{"BOTHY_KERNELS=" + kernels}, "engine: {cpu_level: "+level+"}\n"
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// Features above the configured level are hidden from programs if the processor can hide them, and always
// in virtual machines. Snapshots taken at a lower level can be resumed.
func TestASandboxSeesTheProcessorOfItsLevel(t *testing.T) {
	t.Parallel()
	s := leveled(t, bothy.CPULevel2)
	for _, engine := range []string{"gvisor", "microvm"} {
		t.Run(engine, func(t *testing.T) {
			needEngine(t, engine)
			l := begin(t, s, engine, bothy.SandboxCreate{})
			see := func(when string) {
				t.Helper()
				flags := l.flags()
				for _, f := range flags {
					if strings.HasPrefix(f, "avx") || f == "bmi2" || f == "fma" {
						t.Errorf("%s it sees %s", when, f)
					}
				}
				if !strings.Contains(strings.Join(flags, " "), "sse4_2") {
					t.Errorf("%s it sees %v", when, flags)
				}
			}
			see("at first")
			l.progress()
			l.write("/tmp/asks.py", asks)
			if got := strings.TrimSpace(l.sh("", "python3 /tmp/asks.py")); got != "" && engine == "microvm" {
				t.Errorf("CPUID reports %s", got)
			} else if got != "" {
				t.Logf("CPUID reports %s to programs; the processor can hide features: %v", got, strings.Contains(hostFlags(t), " cpuid_fault "))
			}
			l.progress()
			if _, err := s.Snapshots.Pause(l.ctx, l.id, bothy.PauseOptions{}); err != nil {
				t.Fatal(err)
			}
			l.progress()
			sb, err := s.Snapshots.Resume(l.ctx, l.id, bothy.ResumeOptions{})
			if err != nil || sb.Resumed.Kind != bothy.SnapshotMemory {
				t.Fatalf("%+v %v", sb, err)
			}
			see("after it slept")
		})
	}
}

func hostFlags(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "flags") {
			return strings.ReplaceAll(line, "\n", " ")
		}
	}
	return ""
}

// placedHosts are three hosts in two zones, of which the third has a lower processor level.
func placedHosts(t *testing.T) []*server {
	t.Helper()
	if !strings.Contains(hostFlags(t), " avx2 ") {
		t.Skip("this processor has no feature that a lower level lacks")
	}
	zones := []string{"a", "b", "b"}
	hosts := newHostsWith(t, func(i int, settings, store string) (string, string) {
		return strings.Replace(settings, "cluster:\n", "cluster:\n  labels: {zone: "+zones[i]+"}\n", 1), store
	}, "one", "two", "three")
	three := hosts[2]
	if err := three.Stop(); err != nil {
		t.Fatal(err)
	}
	three.Env = append(three.Env, "BOTHY_FAILPOINTS=server.processor=error")
	if err := three.Start(); err != nil {
		t.Fatal(err)
	}
	return hosts
}

// A snapshot of memory is resumed on a host whose processor has its features, or refused with an error
// that lists them.
func TestHostsResumeWhatTheirProcessorsSupport(t *testing.T) {
	t.Parallel()
	hosts := placedHosts(t)
	one, three := hosts[0], hosts[2]
	ctx := t.Context()
	for _, h := range must(one.Hosts.Hosts(ctx)) {
		switch p := h.Processor; {
		case p == nil || p.CPULevel != bothy.CPUHost || p.Vendor == "" || len(p.Features) == 0:
			t.Errorf("the host %s reports the processor %+v", h.Name, p)
		case h.Name == "three" && (p.Level != bothy.CPULevel2 || !strings.Contains(h.ProcessorProblem, "cannot be restored here") || !strings.Contains(h.ProcessorProblem, "engine.cpu_level")):
			t.Errorf("the host three has %s, and the problem %q", p, h.ProcessorProblem)
		case h.Name != "three" && h.ProcessorProblem != "":
			t.Errorf("the host %s has the problem %q", h.Name, h.ProcessorProblem)
		}
	}
	b := &box{t, one, ctx, ""}
	eventually(t, "a sandbox is made on a host that can do more", func() bool {
		b.id = must(one.create(ctx, smallest)).ID
		if sandboxesOn(t, one)["three"] == 0 {
			return true
		}
		if err := one.Sandboxes.Terminate(ctx, b.id); err != nil {
			t.Fatal(err)
		}
		return false
	})
	if on := sandboxesOn(t, one); on["one"] != 1 {
		b.moveTo("one")
	}
	b.sh("", "echo kept >/dev/shm/memory")
	if _, err := one.Hosts.MoveSandbox(ctx, b.id, bothy.SandboxMove{Host: "three"}); bothy.ErrorCode(err) != bothy.CodeConflict || !strings.Contains(bothy.AsError(err).Detail, "another processor") {
		t.Errorf("a move to a lower processor: %v", err)
	}
	b.usable()

	// A drain moves it only to a suitable host.
	program := must(testserver.Program())
	if out, err := one.cli(t, program, "host", "drain", "one", "--deadline", "4m"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if on := sandboxesOn(t, one); on["two"] != 1 {
		t.Errorf("the hosts have %v", on)
	}
	// The owner is drained, so a resume goes to another suitable host.
	if _, err := three.Snapshots.Pause(ctx, b.id, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, h := range []bothy.ClusterHost{{Name: "one", State: bothy.HostUp}, {Name: "two", State: bothy.HostCordoned}} {
		if _, err := one.Hosts.UpdateHost(ctx, h.Name, bothy.HostUpdate{State: h.State}); err != nil {
			t.Fatal(err)
		}
	}
	// Other hosts may see an outdated list of hosts.
	eventually(t, "it wakes on the host one", func() bool {
		sb, err := three.Snapshots.Resume(ctx, b.id, bothy.ResumeOptions{})
		if err != nil || sb.Resumed.Kind != bothy.SnapshotMemory {
			t.Fatalf("%+v %v", sb, err)
		}
		if sandboxesOn(t, one)["one"] == 1 {
			return true
		}
		if _, err = three.Snapshots.Pause(ctx, b.id, bothy.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		return false
	})
	if got := b.sh("", "cat /dev/shm/memory"); got != "kept" {
		t.Errorf("its memory contains %q", got)
	}

	// If no available host is suitable, the error lists what the snapshot needs.
	if _, err := one.Hosts.UpdateHost(ctx, "one", bothy.HostUpdate{State: bothy.HostCordoned}); err != nil {
		t.Fatal(err)
	}
	_, err := one.Hosts.MoveSandbox(ctx, b.id, bothy.SandboxMove{})
	e := bothy.AsError(err)
	for _, want := range []string{"a processor like", "three (up", "without"} {
		if e.Code != bothy.CodeUnsupported || !strings.Contains(e.Detail, want) {
			t.Errorf("a move that no host can accept: %v", err)
			break
		}
	}
	b.usable()
}

// A sandbox is created on a host with the requested labels, and stays on such hosts.
func TestHostsAreChosenByLabels(t *testing.T) {
	t.Parallel()
	hosts := placedHosts(t)
	one := hosts[0]
	ctx := t.Context()
	in := func(s *server, labels map[string]string) (*bothy.Sandbox, error) {
		req := smallest
		req.HostLabels, req.Template = labels, templateName
		return s.Sandboxes.Create(ctx, req)
	}
	for range 3 {
		sb, err := in(hosts[1], map[string]string{"zone": "a"})
		if err != nil || sb.HostLabels["zone"] != "a" {
			t.Fatalf("%+v %v", sb, err)
		}
		if _, err := in(one, map[string]string{"zone": "b"}); err != nil {
			t.Fatal(err)
		}
	}
	if on := sandboxesOn(t, one); on["one"] != 3 || on["two"]+on["three"] != 3 {
		t.Errorf("the hosts have %v", on)
	}
	_, err := in(one, map[string]string{"zone": "c"})
	if e := bothy.AsError(err); e.Code != bothy.CodeInvalid || !strings.Contains(e.Hint, "zone=a (one)") || !strings.Contains(e.Hint, "zone=b (three, two)") && !strings.Contains(e.Hint, "zone=b (two, three)") {
		t.Errorf("a label that no host has: %v", err)
	}
	for name := range sandboxesOn(t, one) {
		state := bothy.HostUp
		if name == "one" {
			state = bothy.HostCordoned
		}
		if _, err := one.Hosts.UpdateHost(ctx, name, bothy.HostUpdate{State: state}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a create for the cordoned host alone is refused", func() bool {
		_, err := in(hosts[2], map[string]string{"zone": "a"})
		return bothy.ErrorCode(err) == bothy.CodeCapacity && strings.Contains(bothy.AsError(err).Detail, "zone=a")
	})
	all, err := one.Sandboxes.List(ctx, bothy.SandboxFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range all.Items {
		if sb.HostLabels["zone"] != "a" {
			continue
		}
		if _, err := one.Hosts.MoveSandbox(ctx, sb.ID, bothy.SandboxMove{Host: "two"}); bothy.ErrorCode(err) != bothy.CodeConflict || !strings.Contains(bothy.AsError(err).Detail, "zone=a") {
			t.Errorf("a move to a host without its labels: %v", err)
		}
		break
	}
	program := must(testserver.Program())
	if out, err := one.cli(t, program, "create", templateName, "--memory", "64", "--host-label", "zone=b"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := one.cli(t, program, "create", "--host-label", "zone"); err == nil || !strings.Contains(out, "KEY=VALUE") {
		t.Errorf("a label without a value: %v %s", err, out)
	}
}

// A server without a cluster has no hosts to choose from.
func TestHostLabelsNeedACluster(t *testing.T) {
	t.Parallel()
	_, err := shared.Sandboxes.Create(context.WithoutCancel(t.Context()), bothy.SandboxCreate{HostLabels: map[string]string{"zone": "a"}})
	if e := bothy.AsError(err); e.Code != bothy.CodeUnsupported || !strings.Contains(e.Detail, "this server is not part of a cluster") {
		t.Errorf("got %v", err)
	}
}
