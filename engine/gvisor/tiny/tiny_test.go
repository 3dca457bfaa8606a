package tiny

import (
	"errors"
	"fmt"
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

// TestConfineLeavesTwoCapabilities has a shell say what it is left with, in a user
// namespace like that of a sentry.
func TestConfineLeavesTwoCapabilities(t *testing.T) {
	cmd := exec.Command(path(t, Confine()))
	cmd.Args = []string{"/bin/sh", "name", "-c", `grep Cap /proc/self/status; echo "$0 $1 $WORD"`, "zero", "one"}
	cmd.Env = []string{"WORD=word"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		Credential:  &syscall.Credential{},
		UidMappings: []syscall.SysProcIDMap{{HostID: 65534, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: 65534, Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const want = `
CapInh:	0000000000280000
CapPrm:	0000000000280000
CapEff:	0000000000280000
CapBnd:	0000000000080000
CapAmb:	0000000000000000
zero one word`
	if got := strings.TrimSpace(string(out)); got != strings.TrimSpace(want) {
		t.Errorf("the shell says\n%s\nwant\n%s", got, want)
	}
}

func TestConfineFailsAloud(t *testing.T) {
	cmd := exec.Command(path(t, Confine()))
	cmd.Args = []string{"/nowhere"}
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 127 {
		t.Errorf("with no program to execute: %v", err)
	}
}
