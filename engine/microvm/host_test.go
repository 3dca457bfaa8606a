package microvm_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/microvm"
)

// TestQEMUIsConfined inspects the process of a machine from the host.
func TestQEMUIsConfined(t *testing.T) {
	dir := t.TempDir()
	m, err := newEngine(t, options(dir, newParent(t))).Start(t.Context(), spec("jailed"))
	use(t, m, err)
	var state struct{ PID, UID int }
	if err := json.Unmarshal(m.State(), &state); err != nil || state.PID == 0 || state.UID == 0 {
		t.Fatalf("the state %s names no process: %v", m.State(), err)
	}
	proc := fmt.Sprintf("/proc/%d", state.PID)
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d", state.UID), fmt.Sprintf("Gid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d", state.UID), "CapInh:\t0000000000000000", "CapPrm:\t0000000000000000",
		"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2",
	} {
		if !strings.Contains(string(status), want+"\n") {
			t.Errorf("QEMU's status does not say %q", want)
		}
	}
	for _, ns := range []string{"mnt", "pid", "net", "ipc", "uts"} {
		ours, _ := os.Readlink("/proc/self/ns/" + ns)
		if theirs, err := os.Readlink(proc + "/ns/" + ns); err != nil || theirs == ours {
			t.Errorf("QEMU is in the host's namespace %s (%v)", ns, err)
		}
	}
	known := map[string]bool{
		"qemu": true, "firmware": true, "modules": true, "kernel": true, "initramfs": true, "m": true, "dev": true, "tmp": true,
		"lib": true, "lib64": true, "usr": true,
	}
	entries, err := os.ReadDir(proc + "/root")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range entries {
		if !known[f.Name()] {
			t.Errorf("QEMU sees /%s", f.Name())
		}
	}
	mounts, _ := os.ReadFile(proc + "/mounts")
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); !strings.HasPrefix(f[3], "ro") || !strings.Contains(f[3], "nosuid") {
			t.Errorf("QEMU has the mount %s", line)
		}
	}
	sharedFiles(t, proc)
}

// sharedFiles checks that files shared with other machines cannot be written.
func sharedFiles(t *testing.T, proc string) {
	t.Helper()
	shared := map[uint64]string{}
	for _, path := range []string{built.rootfs, built.guest, built.image.Kernel, built.image.Initramfs} {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		shared[st.Ino] = path
	}
	fds, err := os.ReadDir(proc + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, fd := range fds {
		var st unix.Stat_t
		if unix.Stat(proc+"/fd/"+fd.Name(), &st) != nil || shared[st.Ino] == "" {
			continue
		}
		seen++
		info, _ := os.ReadFile(proc + "/fdinfo/" + fd.Name())
		var pos, flags uint64
		if _, err := fmt.Sscanf(string(info), "pos:\t%d\nflags:\t%o", &pos, &flags); err != nil || flags&unix.O_ACCMODE != unix.O_RDONLY {
			t.Errorf("QEMU may write to %s: flags %o, %v", shared[st.Ino], flags, err)
		}
	}
	if seen == 0 {
		t.Error("QEMU has none of the images open: the test looks at the wrong process")
	}
}

// image makes an EROFS image with one file, unless name is empty.
func image(t *testing.T, name, from string) string {
	t.Helper()
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "image.erofs")
	if name != "" {
		if err := command("cp", from, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := command("mkfs.erofs", "-E", "noinline_data", out, dir); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestBadImages(t *testing.T) {
	e := newEngine(t, options(t.TempDir(), newParent(t)))
	noGuest := spec("noguest")
	noGuest.Guest = image(t, "", "")
	notAProgram := spec("notaprogram")
	notAProgram.Guest = image(t, "guest", "microvm_test.go")
	garbage := spec("garbage")
	garbage.RootFS = "microvm_test.go"
	for _, s := range []bothy.MachineSpec{noGuest, notAProgram, garbage} {
		if _, err := e.Start(t.Context(), s); bothy.ErrorCode(err) != bothy.CodeTemplateInvalid {
			t.Errorf("%s: %v", s.ID, err)
		}
	}
	nothingLeft(t, e)
}

func nothingLeft(t *testing.T, e *microvm.Engine) {
	t.Helper()
	if ids, err := e.Sweep(t.Context(), func(string) bool { return false }); err != nil || len(ids) > 0 {
		t.Errorf("left behind: %v, %v", ids, err)
	}
}

// TestGuestEnds has a guest that is a program which exits.
func TestGuestEnds(t *testing.T) {
	e := newEngine(t, options(t.TempDir(), newParent(t)))
	ends := filepath.Join(t.TempDir(), "ends")
	if err := os.WriteFile(ends+".go", []byte("package main\n\nimport \"os\"\n\nfunc main() { os.Exit(7) }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := command("go", "build", "-o", ends, ends+".go"); err != nil {
		t.Fatal(err)
	}
	s := spec("ends")
	s.Guest = image(t, "guest", ends)
	m, err := e.Start(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-m.Done():
	case <-time.After(patience):
		t.Fatal("the machine keeps running without a guest")
	}
	if x := m.Exit(); x.Reason != bothy.EndExited || !strings.Contains(x.Detail, "exit status 7") {
		t.Errorf("exit is %+v", x)
	}
	nothingLeft(t, e)
}

func TestKernelPanics(t *testing.T) {
	o := options(t.TempDir(), newParent(t))
	o.Boot.Initramfs = filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(o.Boot.Initramfs, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	e := newEngine(t, o)
	_, err := e.Start(t.Context(), spec("panics"))
	if bothy.ErrorCode(err) != bothy.CodeEngine || !strings.Contains(fmt.Sprint(err), "panicked") {
		t.Errorf("a kernel without an init program: %v", err)
	}
	nothingLeft(t, e)
}

func TestMoreMemoryThanTheHost(t *testing.T) {
	e := newEngine(t, options(t.TempDir(), newParent(t)))
	s := spec("huge")
	s.Limits.MemoryMB = 1 << 30
	if _, err := e.Start(t.Context(), s); bothy.ErrorCode(err) != bothy.CodeCapacity {
		t.Errorf("a machine larger than the host: %v", err)
	}
}

func TestQEMUMissingOrTooOld(t *testing.T) {
	dir := t.TempDir()
	for name, says := range map[string]string{"old": "QEMU emulator version 5.2.0 (Debian 1:5.2)", "odd": "hello", "none": ""} {
		o := options(dir, newParent(t))
		o.QEMU = filepath.Join(dir, name)
		if says != "" {
			if err := os.WriteFile(o.QEMU, []byte("#!/bin/sh\necho '"+says+"'\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		_, err := microvm.New(o)
		var be *bothy.Error
		if !errors.As(err, &be) || be.Code != bothy.CodeEngineMissing || !strings.Contains(be.Hint, "apt-get install") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
