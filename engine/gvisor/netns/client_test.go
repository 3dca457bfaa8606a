package netns

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The roles of this test's program as a helper.
const (
	roleEnv = "NETNS_TEST_ROLE"
	// stops itself at its first start and answers afterwards
	roleStopsOnce = "stops once"
	// answers with too many descriptors
	roleTooMany = "too many"
	// answers with an error
	roleRefuses = "refuses"
	markEnv     = "NETNS_TEST_MARK"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		help(role)
		return
	}
	os.Exit(m.Run())
}

func help(role string) {
	if role == roleStopsOnce {
		if f, err := os.OpenFile(os.Getenv(markEnv), os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			f.Close()
			unix.Kill(os.Getpid(), unix.SIGSTOP)
		}
	}
	for buf := make([]byte, 256); ; {
		if n, err := unix.Read(3, buf); err != nil || n == 0 {
			return
		}
		r, fds := reply{}, []int{0}
		switch role {
		case roleTooMany:
			fds = []int{0, 0, 0, 0, 0}
		case roleRefuses:
			r.Error = "the helper refuses"
		}
		b, _ := json.Marshal(r)
		unix.Sendmsg(3, b, unix.UnixRights(fds...), nil, 0)
	}
}

func helper(t *testing.T, role string) *Client {
	t.Helper()
	t.Setenv(roleEnv, role)
	c := NewClient(os.Args[0])
	c.Timeout = 2 * time.Second
	t.Cleanup(func() { c.Close() })
	return c
}

// TestHelperThatHangsIsReplaced stops the helper with a signal. A second call that waits behind the first is
// answered too.
func TestHelperThatHangsIsReplaced(t *testing.T) {
	t.Setenv(markEnv, t.TempDir()+"/stopped")
	c := helper(t, roleStopsOnce)
	failed := make(chan error, 2)
	for range 2 {
		go func() {
			f, err := c.Open(1)
			if err == nil {
				err = f.Close()
			}
			failed <- err
		}()
	}
	for range 2 {
		select {
		case err := <-failed:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("a call waits for a hung helper")
		}
	}
}

// TestHelperThatHangsIsEnded closes the client while its helper is stopped.
func TestHelperThatHangsIsEnded(t *testing.T) {
	c := helper(t, "answers")
	f, err := c.Open(1)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	pid := c.cmd.Process.Pid
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		unix.Kill(pid, unix.SIGKILL)
		t.Fatal("Close waits for a hung helper")
	}
	if err := unix.Kill(pid, 0); err != unix.ESRCH {
		t.Errorf("the helper still exists: %v", err)
	}
}

// TestNoDescriptorIsLeftOpen counts this process's descriptors around invalid answers.
func TestNoDescriptorIsLeftOpen(t *testing.T) {
	for role, want := range map[string]string{roleTooMany: "got 5 descriptors instead of 1", roleRefuses: "the helper refuses"} {
		c := helper(t, role)
		c.Open(1) // opens what stays open
		before := descriptors(t)
		for range 3 {
			if _, err := c.Open(1); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", role, err)
			}
		}
		c.Close()
		if after := descriptors(t); after > before {
			t.Errorf("%s: %d descriptors are open, %d before", role, after, before)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}
