package snapshots

import (
	"strconv"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

func (b *box) fork(count int) []*box {
	b.Helper()
	ctx, cancel := within(b.T)
	defer cancel()
	list, err := b.s.Snapshots.Fork(ctx, b.id, bothy.ForkRequest{Count: count})
	if err != nil {
		b.Fatalf("fork: %v", err)
	}
	boxes := make([]*box, len(list))
	for i, sb := range list {
		boxes[i] = b.s.box(b.T, sb.ID)
	}
	return boxes
}

func TestForksAreIndependent(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{})
	b.startCounter()
	b.sh("echo one >/workspace/file")
	before := b.counter()
	all := append(b.fork(3), b)
	if len(all) != 4 {
		t.Fatalf("%d copies", len(all)-1)
	}
	for i, c := range all {
		c.is(bothy.StateRunning)
		c.continued(before)
		c.sh("echo " + strconv.Itoa(i) + " >>/workspace/file")
	}
	// Stopping one counter does not affect the others.
	all[0].sh("kill -STOP " + strconv.Itoa(before.pid))
	all[1].continued(before)
	b.continued(before)
	for i, c := range all {
		if got := c.sh("cat /workspace/file"); got != "one\n"+strconv.Itoa(i) {
			t.Errorf("copy %d has %q", i, got)
		}
	}
}

func TestForksHaveDifferentIdentities(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{})
	b.startCounter()
	all := append(b.fork(3), b)
	differs := map[string]string{
		"urandom":     "head -c16 /dev/urandom | od -An -tx1",
		"random":      "python3 -c 'import random; print(random.random())'",
		"uuid4":       "python3 -c 'import uuid; print(uuid.uuid4())'",
		"kernel uuid": "cat /proc/sys/kernel/random/uuid || echo none $RANDOM $(hostname)",
		"openssl":     "command -v openssl >/dev/null && openssl rand -hex 16 || head -c16 /dev/random | od -An -tx1",
		"bash":        "echo $SRANDOM",
		"hostname":    "hostname",
		"machine id":  "cat /etc/machine-id",
	}
	for what, line := range differs {
		seen := map[string]string{}
		for _, c := range all {
			out := c.sh(line)
			if twin := seen[out]; twin != "" || out == "" {
				t.Errorf("%s: %s and %s both have %q", what, twin, c.id, out)
			}
			seen[out] = c.id
		}
	}
	drawn := map[string]bool{}
	for _, c := range all {
		drawn[c.counter().drawn] = true
	}
	if len(drawn) != len(all) {
		t.Errorf("the processes that were running draw the same numbers: %v", drawn)
	}
	same := map[string]string{
		"10.0.0.2":            `python3 -c 'import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.connect(("10.0.0.1", 53)); print(s.getsockname()[0])'`,
		"nameserver 10.0.0.1": "cat /etc/resolv.conf",
	}
	for want, line := range same {
		for _, c := range all {
			if got := c.sh(line); got != want {
				t.Errorf("%s: %q, want %q", c.id, got, want)
			}
		}
	}
	for _, c := range all {
		c.rightTime()
	}
}

// rightTime compares the sandbox's clock with the host's.
func (b *box) rightTime() {
	b.Helper()
	from := time.Now().Add(-2 * time.Second)
	n, err := strconv.ParseInt(b.sh("date +%s%N"), 10, 64)
	if at := time.Unix(0, n); err != nil || at.Before(from) || at.After(time.Now().Add(2*time.Second)) {
		b.Errorf("the sandbox's time is %s, the host's %s (%v)", at, time.Now(), err)
	}
}

func TestLiveSnapshot(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{Env: map[string]string{"COLOUR": "gorse"}})
	b.startCounter()
	b.sh("echo old >/workspace/file")
	before := b.counter()
	n := b.snapshot("first")
	b.continued(before)
	b.sh("echo new >/workspace/file")
	child := b.snapshot("second")
	if child.ParentID != n.ID || n.ParentID != "" || n.Name != "first" || n.SandboxID != b.id {
		t.Errorf("the tree is %+v and %+v", n, child)
	}
	ctx, cancel := within(t)
	defer cancel()
	page, err := b.s.Snapshots.Snapshots(ctx, bothy.SnapshotFilter{SandboxID: b.id})
	if err != nil || len(page.Items) != 2 {
		t.Errorf("the snapshots are %+v, %v", page.Items, err)
	}

	c := b.s.newBox(t, bothy.SandboxCreate{SnapshotID: n.ID})
	c.continued(before)
	if got := c.sh("cat /workspace/file; echo $COLOUR; whoami"); got != "old\ngorse\nuser" {
		t.Errorf("the copy has %q", got)
	}
	if sb := c.get(); sb.ParentSnapshotID != n.ID {
		t.Errorf("the copy's parent is %q", sb.ParentSnapshotID)
	}
	if err := b.s.Snapshots.DeleteSnapshot(ctx, n.ID); err != nil {
		t.Fatal(err)
	}
	_, err = b.s.Snapshots.Snapshot(ctx, n.ID)
	refused(t, "a deleted snapshot", err, bothy.CodeSnapshotNotFound)
	b.s.newBox(t, bothy.SandboxCreate{SnapshotID: child.ID}).continued(before)
}

func TestRollback(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{})
	b.startCounter()
	b.sh("echo then >/workspace/file")
	n := b.snapshot("then")
	ctx, cancel := within(t)
	defer cancel()
	limit := b.counter()
	eventually(t, "count far on", func() bool { return b.counter().n > limit.n+200 })
	late := b.counter()
	b.sh("echo now >/workspace/file; kill " + strconv.Itoa(late.pid))
	sb, err := b.s.Snapshots.Rollback(ctx, b.id, n.ID)
	if err != nil || sb.ID != b.id || sb.State != bothy.StateRunning {
		t.Fatalf("%+v, %v", sb, err)
	}
	if got := b.counter(); got.pid != late.pid || got.n > late.n {
		t.Errorf("the counter is %+v, and was %+v after the snapshot", got, late)
	}
	if got := b.sh("cat /workspace/file"); got != "then" {
		t.Errorf("the file is %q", got)
	}
	page, err := b.s.Snapshots.Snapshots(ctx, bothy.SnapshotFilter{SandboxID: b.id})
	if err != nil || len(page.Items) != 2 {
		t.Fatalf("the snapshots are %+v, %v", page.Items, err)
	}
	kept := page.Items[0]
	if kept.ID == n.ID {
		kept = page.Items[1]
	}
	// The state before the rollback can be restored too.
	if _, err := b.s.Snapshots.Rollback(ctx, b.id, kept.ID); err != nil {
		t.Fatal(err)
	}
	if got := b.sh("cat /workspace/file"); got != "now" {
		t.Errorf("the file is %q", got)
	}
	if _, err := b.try(ask); err == nil {
		t.Error("a killed process runs again")
	}
}
