package launcher

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// file opens a program as a file that is executed at the path by this process's
// children.
func file(t *testing.T, program []byte) (f *os.File, path string) {
	t.Helper()
	if program == nil {
		t.Skip("there is none for this processor")
	}
	fd, err := File("test", program)
	if err != nil {
		t.Fatal(err)
	}
	f = os.NewFile(uintptr(fd), "test")
	t.Cleanup(func() { f.Close() })
	return f, fmt.Sprintf("/proc/self/fd/%d", fd)
}

func TestNobodyCanChangeAFile(t *testing.T) {
	own, path := file(t, []byte("program"))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("the file cannot be opened, so the test proves nothing: %v", err)
	}
	defer f.Close()
	for name, change := range map[string]func() error{
		"write":  func() error { _, err := f.WriteAt([]byte("x"), 0); return err },
		"grow":   func() error { return f.Truncate(100) },
		"shrink": func() error { return f.Truncate(1) },
		"unseal": func() error { _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); return err },
	} {
		if err := change(); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := make([]byte, 100)
	if n, err := own.ReadAt(b, 0); string(b[:n]) != "program" || err != io.EOF {
		t.Errorf("the program is %q, %v", b[:n], err)
	}
}

// confined is a process that Confine's program made, with the ends of its pipes.
type confined struct {
	pid     int
	umount  *os.File
	in, out *os.File
}

// confine has a program executed by Confine's, as root of the user namespace that it
// has then if there is a mapping. Commands come before, in a mount namespace of theirs.
func confine(t *testing.T, mapping string, program *os.File, commands ...string) *confined {
	t.Helper()
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		return r, w
	}
	c := &confined{}
	in, lets := pipe()
	c.in = lets
	out, says := pipe()
	c.out = out
	told, tells := pipe()
	waits, goes := pipe()
	umounts, umount := pipe()
	c.umount = umount
	confiner, path := file(t, Confine(unix.CAP_LAST_CAP))
	args := []string{"name", "one"}
	attr := &os.ProcAttr{Env: []string{"WORD=word"}, Files: []*os.File{in, says, says, tells, waits, umounts, program}}
	if len(commands) > 0 {
		steps := append(commands, fmt.Sprintf("exec /proc/self/fd/%d", len(attr.Files)))
		attr.Files = append(attr.Files, confiner)
		attr.Sys = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		path, args = "/bin/sh", []string{"sh", "-c", strings.Join(steps, " && ")}
	}
	p, err := os.StartProcess(path, args, attr)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{in, says, tells, waits, umounts} {
		f.Close()
	}
	var number [4]byte
	if _, err := io.ReadFull(told, number[:]); err != nil {
		t.Fatal(err)
	}
	if state, err := p.Wait(); err != nil || !state.Success() {
		t.Errorf("the first process ended with %v, %v", state, err)
	}
	c.pid = int(binary.NativeEndian.Uint32(number[:]))
	if mapping != "" {
		for _, file := range []string{"gid_map", "uid_map"} {
			if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", c.pid, file), []byte(mapping), 0); err != nil {
				t.Error(err)
			}
		}
		goes.Write([]byte{1})
	}
	goes.Close()
	return c
}

// wait returns how the process ended.
func (c *confined) wait(t *testing.T) int {
	t.Helper()
	var status unix.WaitStatus
	if _, err := unix.Wait4(c.pid, &status, 0, nil); err != nil {
		t.Fatalf("it is not a child: %v", err)
	}
	return status.ExitStatus()
}

// proc reads a file of the process in /proc.
func (c *confined) proc(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", c.pid, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// caps returns the lines about capabilities in a process's status.
func caps(status string) (lines string) {
	for line := range strings.Lines(status) {
		if strings.HasPrefix(line, "Cap") {
			lines += line
		}
	}
	return lines
}

// waiting is a program that writes a word, waits for one, and then waits for its child. It exits with the
// child's exit status.
func waiting() []byte {
	return program([]call{
		{number: unix.SYS_WRITE, args: args{number(1), text("x"), number(1)}},
		{number: unix.SYS_READ, args: args{number(0), result, number(1)}},
		{number: unix.SYS_WAIT4, args: args{number(0), result}},
		{number: unix.SYS_EXIT, args: args{number(0)}},
		{label: "fail", number: unix.SYS_EXIT, args: args{number(1)}},
	})
}

// TestConfinedProcess inspects a confined process from outside.
func TestConfinedProcess(t *testing.T) {
	program, _ := file(t, waiting())
	c := confine(t, "0 65534 1", program)
	if _, err := io.ReadFull(c.out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if got := c.proc(t, "cmdline"); got != "name\x00one\x00" {
		t.Errorf("its arguments are %q", got)
	}
	if got := c.proc(t, "environ"); got != "WORD=word\x00" {
		t.Errorf("its environment is %q", got)
	}
	const ptrace = "0000000000080000"
	if got, want := caps(c.proc(t, "status")), "CapInh:\t0000000000000000\nCapPrm:\t"+ptrace+"\nCapEff:\t"+ptrace+
		"\nCapBnd:\t"+ptrace+"\nCapAmb:\t0000000000000000\n"; got != want {
		t.Errorf("its capabilities are\n%s\nwant\n%s", got, want)
	}
	for _, name := range strings.Fields("user pid mnt ipc uts net") {
		own, err := os.Readlink("/proc/self/ns/" + name)
		theirs, terr := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", c.pid, name))
		if err != nil || terr != nil || (own == theirs) != (name == "net") {
			t.Errorf("its %s namespace is %s, its parent's %s, %v, %v", name, theirs, own, err, terr)
		}
	}
	if stat := strings.Fields(c.proc(t, "stat")); stat[5] != stat[0] {
		t.Errorf("it is in session %s", stat[5])
	}
	root := fmt.Sprintf("/proc/%d/root", c.pid)
	if entries, err := os.ReadDir(root); err != nil || len(entries) != 1 || entries[0].Name() != "proc" {
		t.Errorf("its root has %v, %v", entries, err)
	}
	if err := os.Mkdir(filepath.Join(root, "new"), 0o755); !errors.Is(err, unix.EROFS) {
		t.Errorf("a file was created in its root: %v", err)
	}
	if link, err := os.Readlink(filepath.Join(root, "proc/self/exe")); err == nil {
		t.Errorf("its /proc is of another PID namespace, in which this process is: %s", link)
	}
	if _, err := os.Stat(filepath.Join(root, "proc/1/status")); err != nil {
		t.Errorf("it is not in its own /proc: %v", err)
	}
	if mounts := c.proc(t, "mounts"); strings.Count(mounts, "\n") != 2 {
		t.Errorf("its mounts are\n%s", mounts)
	}
	for fd := ConfinePID; fd < ConfineFirst; fd++ {
		if link, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", c.pid, fd)); err == nil {
			t.Errorf("its descriptor %d is %s", fd, link)
		}
	}

	c.umount.Write([]byte{1})
	c.in.Write([]byte{1})
	if code := c.wait(t); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

// TestConfineUnmountsOnRequest keeps the process running after its child has ended.
func TestConfineUnmountsOnRequest(t *testing.T) {
	forked := program([]call{
		{number: unix.SYS_WAIT4, args: args{number(0), result}},
		{number: unix.SYS_WRITE, args: args{number(1), text("x"), number(1)}},
		{number: unix.SYS_READ, args: args{number(0), result, number(1)}},
		{number: unix.SYS_EXIT, args: args{number(0)}},
		{label: "fail", number: unix.SYS_EXIT, args: args{number(1)}},
	})
	for word, left := range map[string]int{"": 2, "x": 1} {
		f, _ := file(t, forked)
		c := confine(t, "0 65534 1", f)
		c.umount.WriteString(word)
		c.umount.Close()
		if _, err := io.ReadFull(c.out, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if mounts := c.proc(t, "mounts"); strings.Count(mounts, "\n") != left {
			t.Errorf("with the word %q the mounts are\n%s", word, mounts)
		}
		c.in.Write([]byte{1})
		if code := c.wait(t); code != 0 {
			t.Errorf("it ended with %d", code)
		}
	}
}

// TestConfineWhereProcIsHidden starts it where something is mounted in /proc, so that the kernel allows no
// new /proc.
func TestConfineWhereProcIsHidden(t *testing.T) {
	program, _ := file(t, waiting())
	c := confine(t, "0 65534 1", program, "mount -t tmpfs none /proc/sys")
	if _, err := io.ReadFull(c.out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if mounts := c.proc(t, "mounts"); !strings.Contains(mounts, " /proc/sys tmpfs ") {
		t.Errorf("its mounts are\n%s", mounts)
	}
	// It waits for its child, which unmounts the old one.
	c.umount.Write([]byte{1})
	c.in.Write([]byte{1})
	if code := c.wait(t); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

// TestConfineSaysWhatIsRefused starts it where user namespaces are forbidden.
func TestConfineSaysWhatIsRefused(t *testing.T) {
	program, _ := file(t, Confine(unix.CAP_LAST_CAP))
	cmd := exec.Command("/bin/sh", "-c", "echo 0 >/proc/sys/user/max_user_namespaces && exec /proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{program}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		Credential:  &syscall.Credential{},
		UidMappings: []syscall.SysProcIDMap{{HostID: 65534, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: 65534, Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || syscall.Errno(exit.ExitCode()) != syscall.ENOSPC {
		t.Errorf("it ended with %v: %s", err, out)
	}
}

// TestConfineFailsAloud runs it first without a mapping of root, and then without a program to execute.
func TestConfineFailsAloud(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for mapping, want := range map[string]int{"": 127, "0 65534 1": int(unix.EACCES)} {
		if code := confine(t, mapping, null).wait(t); code != want {
			t.Errorf("with root as %q it ended with %d, want %d", mapping, code, want)
		}
	}
}
