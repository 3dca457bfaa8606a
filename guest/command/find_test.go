package command

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/account"
)

// A command that cannot enter its working directory must not seem to be at fault.
func TestClosedWorkingDirectory(t *testing.T) {
	dir, err := os.MkdirTemp("", "closed") // t.TempDir is closed to others
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	inner := dir + "/inner"
	if err := os.Mkdir(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	user := &account.User{Name: "user", UID: 4321, GID: 4321, Groups: []uint32{4321}}
	for _, c := range []struct {
		mode, innerMode os.FileMode
		user            *account.User
		closed          string
	}{
		{0o755, 0o700, user, inner}, {0o700, 0o755, user, dir}, {0o755, 0o755, user, ""}, {0o711, 0o701, user, ""},
		{0o755, 0o600, account.Root, ""}, {0o755, 0o600, nil, ""},
	} {
		if err := os.Chmod(inner, c.innerMode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, c.mode); err != nil {
			t.Fatal(err)
		}
		err := startError(Spec{Argv: []string{"/bin/bash"}, Dir: inner, User: c.user}, syscall.EACCES)
		text := bothy.AsError(err).Detail
		if c.closed == "" && !strings.Contains(text, `"/bin/bash" cannot be executed`) ||
			c.closed != "" && (!strings.Contains(text, "working directory") || !strings.Contains(text, `permissions of "`+c.closed+`"`)) {
			t.Errorf("%v %v: %v", c.mode, c.innerMode, err)
		}
	}
}
