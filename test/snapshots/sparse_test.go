package snapshots

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

//go:embed testdata/sparse.py
var sparseProgram string

// Memory is the same after a snapshot, in the original and in every copy, for a
// process and for its child that shares it: where little of it was touched, and where
// there is much of it and all was.
func TestSparseMemoryIsWhole(t *testing.T) {
	t.Parallel()
	testMemoryIsWhole(t, 37, 8192)
}

func TestDenseMemoryIsWhole(t *testing.T) {
	t.Parallel()
	testMemoryIsWhole(t, 1, 32<<10)
}

// testMemoryIsWhole touches one in so many pages of so many.
func testMemoryIsWhole(t *testing.T, every, pages int) {
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
					t.Errorf("the %s says %q", who, out)
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
