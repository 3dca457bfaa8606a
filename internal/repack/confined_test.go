package repack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	switch {
	case IsConfined() && os.Args[2] == "look":
		os.Exit(look())
	case IsConfined():
		os.Exit(RunConfined())
	}
	os.Exit(m.Run())
}

// look prints what a confined process can do.
func look() int {
	if err := confine(); err != nil {
		fmt.Println(err)
		return 1
	}
	root, err := os.ReadDir("/")
	fmt.Println("root", len(root), err)
	_, err = os.ReadFile("/etc/passwd")
	fmt.Println("passwd", errors.Is(err, os.ErrNotExist))
	fmt.Println("write", errors.Is(os.WriteFile("/x", nil, 0o600), unix.EROFS))
	fmt.Println("mount", unix.Mount("none", "/", "tmpfs", 0, "") == unix.EPERM)
	var caps [2]unix.CapUserData
	err = unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &caps[0])
	fmt.Println("capabilities", caps[0].Effective|caps[0].Permitted|caps[1].Effective|caps[1].Permitted, err)
	set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	fmt.Println("no new rights", set, err)
	up := 0
	links, _ := net.Interfaces()
	for _, l := range links {
		if l.Flags&net.FlagUp != 0 {
			up++
		}
	}
	fmt.Println("network", up)
	return 0
}

func needRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
}

// The process that repacks has nothing of the host.
func TestConfined(t *testing.T) {
	needRoot(t)
	var out bytes.Buffer
	if err := Confined(t.Context(), archiveOf(t, nil), "look", &out); err != nil {
		t.Fatal(err, out.String())
	}
	want := "root 0 <nil>\npasswd true\nwrite true\nmount true\ncapabilities 0 <nil>\nno new rights 1 <nil>\nnetwork 0\n"
	if out.String() != want {
		t.Errorf("it reports\n%s, want\n%s", out.String(), want)
	}
}

// On the host it is a user that no other program has.
func TestConfinedUser(t *testing.T) {
	needRoot(t)
	file := archiveOf(t, tarOf(t, tar.Header{Name: "a", Typeflag: tar.TypeReg, Uname: strings.Repeat("x", 1<<20)}))
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- Confined(t.Context(), file, "skills/x", w) }()
	if _, err := io.ReadFull(r, make([]byte, 512)); err != nil { // it waits for the rest to be read
		t.Fatal(err)
	}
	found := false
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if bytes.Contains(line, []byte(arg)) {
			status, _ := os.ReadFile("/proc/" + e.Name() + "/status")
			for _, user := range nobody {
				found = found || bytes.Contains(status, fmt.Appendf(nil, "\nUid:\t%d\t%d\t%d\t%d\n", user, user, user, user))
			}
		}
	}
	if !found {
		t.Error("there is no process with the user's id")
	}
	r.CloseWithError(errors.New("enough"))
	if err := <-done; err == nil || err.Error() != "enough" {
		t.Errorf("it ended with %v", err)
	}
}

// It gives the same as Here, refuses the same, and ends with its context.
func TestConfinedRepacks(t *testing.T) {
	needRoot(t)
	good := tarOf(t, tar.Header{Name: "pdf/a", Typeflag: tar.TypeReg, Uname: "one"}, tar.Header{Name: "pdf/b/c", Typeflag: tar.TypeReg, Uname: "two"})
	var here, there bytes.Buffer
	if err := errors.Join(Here(t.Context(), archiveOf(t, good), "skills/x", &here), Confined(t.Context(), archiveOf(t, good), "skills/x", &there)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(here.Bytes(), there.Bytes()) || here.Len() == 0 {
		t.Errorf("%d and %d bytes", here.Len(), there.Len())
	}
	err := Confined(t.Context(), archiveOf(t, bomb(t, 40<<20, 40<<20)), "skills/x", io.Discard)
	if err == nil || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a bomb: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Confined(ctx, archiveOf(t, good), "skills/x", io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}
