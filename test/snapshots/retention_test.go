package snapshots

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/bothy-dev/bothy"
)

// diskBytes returns the space that a server's snapshots take on the disk.
func (s *server) diskBytes(t *testing.T) (sum int64) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(s.Home, "snapshots"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st syscall.Stat_t
		if err := syscall.Lstat(path, &st); err != nil {
			return err
		}
		sum += st.Blocks * 512
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// kept returns the names of a sandbox's snapshots, the latest first.
func (b *box) kept() string {
	b.Helper()
	ctx, cancel := within(b.T)
	defer cancel()
	page, err := b.s.Snapshots.Snapshots(ctx, bothy.SnapshotFilter{SandboxID: b.id, Limit: 100})
	if err != nil {
		b.Fatal(err)
	}
	var names []string
	for _, n := range page.Items {
		names = append(names, n.Name)
	}
	return fmt.Sprint(names)
}

func TestSnapshotsBeyondTheLimitAreDeleted(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	b := s.newBox(t, bothy.SandboxCreate{})
	b.sh("head -c 8M /dev/urandom >/workspace/data")
	for i := range 4 {
		b.snapshot(fmt.Sprint(i))
	}
	before := s.diskBytes(t)
	s.Settings = "snapshots: {keep_per_sandbox: 2}\n"
	s.restart(t)
	if got := b.kept(); got != "[3 2]" {
		t.Errorf("after a start with a limit of two, the snapshots are %s", got)
	}
	if after := s.diskBytes(t); after > before*3/5 {
		t.Errorf("four snapshots took %d bytes, and two still take %d", before, after)
	}
	b.snapshot("4")
	eventually(t, "delete one", func() bool { return b.kept() == "[4 3]" })
	// The snapshot that a sandbox is paused in is kept, and does not count among the named ones later.
	b.pause()
	eventually(t, "delete another", func() bool { return b.kept() == "[ 4]" })
	b.resume(b.id)
	b.sh("test -s /workspace/data")
	s.holds(t, 2)
}

func TestProjectQuota(t *testing.T) {
	t.Parallel()
	s := stoppedServer(t)
	s.Settings = "snapshots: {project_quota_mb: 60}\n"
	s.restart(t)
	b := s.newBox(t, bothy.SandboxCreate{})
	small := b.snapshot("small")
	b.sh("head -c 16M /dev/urandom >/workspace/data")
	b.snapshot("large") // it has the data twice: with the memory, and with the files
	ctx, cancel := within(t)
	defer cancel()
	_, err := s.Snapshots.CreateSnapshot(ctx, b.id, bothy.SnapshotCreate{Name: "too large"})
	refused(t, "more than the quota", err, bothy.CodeQuota)
	_, err = s.Snapshots.Pause(ctx, b.id, bothy.PauseOptions{})
	refused(t, "a pause over the quota", err, bothy.CodeQuota)
	b.is(bothy.StateRunning)
	b.sh("rm /workspace/data")
	s.holds(t, 2)
	if err := s.Snapshots.DeleteSnapshot(ctx, small.ID); err != nil {
		t.Fatal(err)
	}
	b.pause()
	b.resume(b.id)
	limits, err := s.Limits.Limits(ctx)
	if err != nil || limits.Snapshots.LimitMB == nil || *limits.Snapshots.LimitMB != 60 || limits.Snapshots.UsedMB < 30 {
		t.Errorf("the limits are %+v, %v", limits, err)
	}
}
