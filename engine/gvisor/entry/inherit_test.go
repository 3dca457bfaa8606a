package entry

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const childEnv = "BOTHY_TEST_INHERIT"

// TestInheritedDescriptorsAreClosed runs this test again as a process that inherits one descriptor on
// purpose and one by mistake.
func TestInheritedDescriptorsAreClosed(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		report()
		return
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	cmd := exec.Command(os.Args[0], "-test.run=TestInheritedDescriptorsAreClosed")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.ExtraFiles = []*os.File{r, w}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := "3 open, 4 closed, own open"; !strings.Contains(string(out), want) {
		t.Errorf("the process prints %q, want %q", out, want)
	}
}

func report() {
	own, err := os.Open(os.DevNull)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer own.Close()
	if err := closeInherited([]string{"--panic-log-fd=3", "--dev-io-fd=-1", "boot"}); err != nil {
		fmt.Println(err)
		return
	}
	state := func(fd int) string {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			return "closed"
		}
		return "open"
	}
	fmt.Printf("3 %s, 4 %s, own %s\n", state(3), state(4), state(int(own.Fd())))
}
