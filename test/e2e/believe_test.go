package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// Programs inside meet what they would meet on a computer of their own.
func TestProgramsFindAComputer(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{Network: &bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: []string{"good.example.org"}}})

	// A file that is written anew is the same file for who has it open, and a name that the policy
	// refuses does not exist, instead of failing for a while.
	b.sh("", "echo old > /workspace/f; ln /workspace/f /workspace/g")
	if _, err := b.upload("f", strings.NewReader("new")); err != nil {
		t.Fatal(err)
	}
	if got := b.sh("", `cat g; python3 -c 'import socket
try: socket.getaddrinfo("bad.example.org", 80)
except socket.gaierror as e: print("", e.errno == socket.EAI_NONAME)'`); got != "new True" {
		t.Errorf("%q", got)
	}

	// A user's lines in /etc/hosts stay in a copy, which has a name of its own.
	b.sh("root", "echo 10.1.2.3 db.test >> /etc/hosts")
	copies, err := b.s.Snapshots.Fork(b.ctx, b.id, bothy.ForkRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := &box{t, b.s, b.ctx, copies[0].ID}
	t.Cleanup(func() { _ = b.s.Sandboxes.Terminate(context.Background(), c.id) })
	if got := c.sh("", "getent hosts db.test | tr -s ' '; grep -c ^10.0.0.2 /etc/hosts; getent hosts $(hostname) | wc -l"); got != "10.1.2.3 db.test\n1\n1" {
		t.Errorf("a copy has %q", got)
	}

	// A closed working directory is not a broken shell.
	c.sh("", "chmod 000 /workspace")
	_, err = c.exec(line("", "true"))
	wantError(t, err, bothy.CodeInvalid, "closed to the user user")
}
