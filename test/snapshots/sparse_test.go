package snapshots

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

//go:embed testdata/sparse.py
var sparseProgram string

// Memory is unchanged after a snapshot, in the original and in every copy, for a process and for a child
// that shares it: both if little of it was touched, and if all of much memory was.
func TestSparseMemoryIsUnchanged(t *testing.T) {
	t.Parallel()
	testMemoryIsUnchanged(t, 37, 8192)
}

func TestDenseMemoryIsUnchanged(t *testing.T) {
	t.Parallel()
	testMemoryIsUnchanged(t, 1, 32<<10)
}

// testMemoryIsUnchanged touches every n-th of a number of pages.
func testMemoryIsUnchanged(t *testing.T, every, pages int) {
	t.Helper()
	b := shared.newBox(t, bothy.SandboxCreate{MemoryMB: 512})
	b.sh("cat >/workspace/sparse.py <<'END'\n" + sparseProgram + "\nEND")
	b.spawn(fmt.Sprintf("python3 /workspace/sparse.py x %d %d", every, pages))
	eventually(t, "be ready", func() bool {
		out, _ := b.try("cat /workspace/x.*.log | grep -c ready")
		return out == "2"
	})
	asked := 0
	check := func(all ...*box) {
		t.Helper()
		asked++
		for _, c := range all {
			for _, who := range []string{"parent", "child"} {
				c.sh("echo look >/workspace/x." + who)
				var out string
				eventually(t, "answer", func() bool {
					out, _ = c.try(fmt.Sprintf("grep '^%d ' /workspace/x.%s.log", asked, who))
					return out != ""
				})
				if !strings.HasSuffix(out, "whole") {
					t.Errorf("the %s prints %q", who, out)
				}
			}
		}
	}
	check(b)
	first := b.snapshot("first")
	check(b)
	b.pause()
	b.resume(b.id)
	check(b)
	all := append(b.fork(2), b)
	check(all...)
	b.snapshot("last")
	check(all...)
	asked = 1
	check(b.s.newBox(t, bothy.SandboxCreate{SnapshotID: first.ID}))
}

// Holes in files take no space, neither in a sandbox nor in its snapshots. A snapshot whose files with
// their holes are larger than the disk is refused, and the sandbox keeps running.
func TestHolesTakeNoSpace(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	b := s.newBox(t, bothy.SandboxCreate{MemoryMB: 256, DiskMB: 64})
	b.sh("truncate -s 100M /workspace/holes; echo end >>/workspace/holes")
	ctx, cancel := within(t)
	defer cancel()
	n := b.snapshot("")
	if used := s.diskBytes(t); used > 80<<20 || n.SizeBytes > 80<<20 {
		t.Errorf("with 100 MB of holes the snapshot takes %d bytes and reports %d", used, n.SizeBytes)
	}
	b.filesInAnother(ctx)
	for _, size := range []string{"3G", "50T"} {
		b.sh("truncate -s " + size + " /workspace/more")
		before := s.diskBytes(t)
		_, err := s.Snapshots.CreateSnapshot(ctx, b.id, bothy.SnapshotCreate{})
		refused(t, "with "+size+" of holes", err, bothy.CodeUnsupported)
		_, err = s.Snapshots.Pause(ctx, b.id, bothy.PauseOptions{FilesOnly: true})
		refused(t, "a pause with "+size+" of holes", err, bothy.CodeUnsupported)
		if after := s.diskBytes(t); after > before+1<<20 {
			t.Errorf("%s of holes took %d bytes", size, after-before)
		}
		b.is(bothy.StateRunning)
	}
	b.sh("rm /workspace/more")
	b.pause()
	b.resume(b.id)
	if got := b.sh("stat -c %s /workspace/holes; tail -c 4 /workspace/holes"); got != "104857604\nend" {
		t.Errorf("the file is %q", got)
	}
}

// filesInAnother creates another sandbox with the files only, which must have the same holes.
func (b *box) filesInAnother(ctx context.Context) {
	b.Helper()
	n, err := b.s.Snapshots.Pause(ctx, b.id, bothy.PauseOptions{FilesOnly: true})
	if err != nil {
		b.Fatal(err)
	}
	c := b.s.newBox(b.T, bothy.SandboxCreate{SnapshotID: n.ID})
	if got := c.sh("stat -c %s /workspace/holes; tail -c 4 /workspace/holes"); got != "104857604\nend" {
		b.Errorf("in another sandbox the file is %q", got)
	}
	b.resume(b.id)
}
