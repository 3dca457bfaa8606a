package process

import (
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// orphan starts a process that is not a child of this one.
func orphan(t *testing.T, script string) Process {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "("+script+") >/dev/null 2>&1 & echo $!")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Kill(); p.Close() })
	return p
}

// TestWaitStatusSaysHowItEnded kills a child and an orphan.
func TestWaitStatusSaysHowItEnded(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "echo x; exec sleep 100")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	io.ReadFull(out, make([]byte, 1))
	child, err := Open(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	for name, p := range map[string]Process{"child": child, "orphan": orphan(t, "exec sleep 100")} {
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		status, known := p.WaitStatus()
		if got := Ended(status, known); !known || !status.Signaled() || !strings.Contains(got, "SIGKILL") {
			t.Errorf("%s: it %s", name, got)
		}
	}
}
