package tiny

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// path returns a path at which a program can be executed by this process's children.
func path(t *testing.T, program []byte) string {
	t.Helper()
	if program == nil {
		t.Skip("there is none for this processor")
	}
	fd, err := File("test", program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fmt.Sprintf("/proc/self/fd/%d", fd)
}

func TestNobodyCanChangeAFile(t *testing.T) {
	f, err := os.OpenFile(path(t, Umount()), os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("the program can be changed")
	}
}

func TestUmountWaitsForAWord(t *testing.T) {
	program := path(t, Umount())
	for word, works := range map[string]bool{"": false, "x": true} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		cmd := exec.Command(program)
		cmd.ExtraFiles = []*os.File{r}
		// Mounts are private there.
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		w.WriteString(word)
		w.Close()
		if err := cmd.Run(); (err == nil) != works {
			t.Errorf("with the word %q: %v", word, err)
		}
	}
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Errorf("it unmounted more than its own: %v", err)
	}
}

// confine runs a program by Confine's, as root of the user namespace that it has then,
// and returns the number of its process, and what it says.
func confine(t *testing.T, mapping string, args ...string) (int, string) {
	t.Helper()
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		return r, w
	}
	out, says := pipe()
	told, tells := pipe()
	waits, lets := pipe()
	p, err := os.StartProcess(path(t, Confine()), args, &os.ProcAttr{
		Env: []string{"WORD=word"}, Files: []*os.File{nil, says, says, tells, waits},
	})
	if err != nil {
		t.Fatal(err)
	}
	tells.Close()
	says.Close()
	var number [4]byte
	if _, err := io.ReadFull(told, number[:]); err != nil {
		t.Fatal(err)
	}
	if state, err := p.Wait(); err != nil || !state.Success() {
		t.Errorf("the first process ended with %v, %v", state, err)
	}
	pid := int(binary.NativeEndian.Uint32(number[:]))
	if mapping != "" {
		for _, file := range []string{"gid_map", "uid_map"} {
			if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, file), []byte(mapping), 0); err != nil {
				t.Error(err)
			}
		}
		lets.Write([]byte{1})
	}
	lets.Close()
	said, err := io.ReadAll(out)
	if err != nil {
		t.Error(err)
	}
	return pid, strings.TrimSpace(string(said))
}

// TestConfineLeavesTwoCapabilities has a shell say where it is and what it is left with.
func TestConfineLeavesTwoCapabilities(t *testing.T) {
	pid, got := confine(t, "0 65534 1", "/bin/sh", "name", "-c",
		`grep Cap /proc/self/status; echo "$0 $1 $WORD $$ $(id -u) $(id -g)"
		for ns in user pid mnt ipc uts net; do readlink /proc/self/ns/$ns; done`, "zero", "one")
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil || status != 0 {
		t.Errorf("it is no child that ended well: %v, %v", status, err)
	}
	said, spaces, _ := strings.Cut(got, "user:")
	if want := strings.TrimSpace(`
CapInh:	0000000000280000
CapPrm:	0000000000280000
CapEff:	0000000000280000
CapBnd:	0000000000080000
CapAmb:	0000000000000000
zero one word 1 0 0`); strings.TrimSpace(said) != want {
		t.Errorf("the shell says\n%s\nwant\n%s", said, want)
	}
	for _, ns := range strings.Fields("user:" + spaces) {
		name, _, _ := strings.Cut(ns, ":")
		own, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil || (own == ns) != (name == "net") {
			t.Errorf("its namespace is %s, and that of who started it %s, %v", ns, own, err)
		}
	}
}

// TestConfineSaysWhatIsRefused starts it where nobody may make a user namespace.
func TestConfineSaysWhatIsRefused(t *testing.T) {
	program, err := os.Open(path(t, Confine()))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	cmd := exec.Command("/bin/sh", "-c", "echo 0 >/proc/sys/user/max_user_namespaces && exec /proc/self/fd/3 /nowhere")
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

// TestConfineFailsAloud has no program to execute, and then nobody who says who root is.
func TestConfineFailsAloud(t *testing.T) {
	for _, mapping := range []string{"0 65534 1", ""} {
		pid, _ := confine(t, mapping, "/nowhere")
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, 0, nil); err != nil || status.ExitStatus() != 127 {
			t.Errorf("with root as %q it ended with %d, %v", mapping, status.ExitStatus(), err)
		}
	}
}
