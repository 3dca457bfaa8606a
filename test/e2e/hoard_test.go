package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// What costs the sandbox's kernel memory, and belongs to no process that could be killed
// for it, ends in an error for who takes too much. The sandbox lives on, and what can be
// removed is removed.
func TestHoards(t *testing.T) {
	t.Parallel()
	const noSpace, noFile, noBuffer = "No space left on device", "Too many open files", "No buffer space"
	for kind, want := range map[string][]string{
		"file": {noSpace}, "folder": {noSpace}, "link": {noSpace}, "symlink": {noSpace}, "attribute": {noSpace},
		"pipe": {noFile, noBuffer}, "socket": {noFile, noBuffer},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, bothy.SandboxCreate{MemoryMB: 256, DiskMB: 1024})
			r := b.python("", "hoard.py", kind)
			said := func(word string) bool { return strings.Contains(r.Stdout, word) }
			if r.ExitCode != 7 || !slices.ContainsFunc(want, said) {
				t.Errorf("it ended with %d, %q, %q, hint %q", r.ExitCode, r.Stdout, r.Stderr, r.Hint)
			}
			b.sh("", "rm -rf /workspace/hoard")
			b.usable()
		})
	}
}

// TestTooManyFiles looks at what is said of files without content.
func TestTooManyFiles(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{MemoryMB: 256, DiskMB: 1024})
	r := b.python("", "hoard.py", "file")
	if !strings.Contains(r.Hint, "memory_mb") || !strings.Contains(r.Hint, "32768 files") {
		t.Errorf("the hint is %q", r.Hint)
	}
	if got := b.sh("", "df --output=iavail / | tail -1"); got != "0" {
		t.Errorf("df says that %s more are possible", got)
	}
	_, err := b.upload("/workspace/one-more", strings.NewReader("x"))
	wantError(t, err, bothy.CodeDiskFull, "its memory allows")
	b.sh("", "rm -rf /workspace/hoard")
	b.usable()
}
