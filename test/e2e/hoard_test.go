package e2e

import (
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// What costs the sandbox's kernel memory, and belongs to no process that could be killed
// for it, ends in an error for who takes too much. The sandbox lives on, and what can be
// removed is removed.
func TestHoards(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]string{
		"file": "No space left on device", "folder": "No space left on device", "link": "No space left on device",
		"symlink": "No space left on device", "attribute": "No space left on device",
		"pipe": "Too many open files", "socket": "Too many open files",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBox(t, bothy.SandboxCreate{MemoryMB: 256, DiskMB: 1024})
			r := b.python("", "hoard.py", kind)
			if r.ExitCode != 7 || !strings.Contains(r.Stdout, want) {
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
