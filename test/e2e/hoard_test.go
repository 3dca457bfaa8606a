package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// Some objects take memory of the sandbox's kernel, but belong to no process that could be killed for it.
// Creating too many fails with an error, and the sandbox keeps running.
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

// TestTooManyFiles checks the hint about too many empty files.
func TestTooManyFiles(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{MemoryMB: 256, DiskMB: 1024})
	r := b.python("", "hoard.py", "file")
	if !strings.Contains(r.Hint, "memory_mb") || !strings.Contains(r.Hint, "32768 files") {
		t.Errorf("the hint is %q", r.Hint)
	}
	if got := b.sh("", "df --output=iavail / | tail -1"); got != "0" {
		t.Errorf("df reports room for %s more files", got)
	}
	_, err := b.upload("/workspace/one-more", strings.NewReader("x"))
	wantError(t, err, bothy.CodeDiskFull, "its memory allows")
	b.sh("", "rm -rf /workspace/hoard")
	b.usable()
}

// TestWhiteoutsAreFiles creates the devices with which an overlay marks removed files, which any user
// may create. In an in-memory file system they count like other files.
func TestWhiteoutsAreFiles(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{MemoryMB: 256})
	const left = "df --output=iavail /dev/shm | tail -1"
	before := b.sh("user", left)
	got := b.sh("user", `python3 -c '
import os, stat
os.mkdir("/dev/shm/w")
n = 0
try:
    while n < 20000:
        os.mknod(f"/dev/shm/w/{n}", stat.S_IFCHR, 0)
        n += 1
except OSError as e:
    print(e.strerror)
for i in range(n):
    os.remove(f"/dev/shm/w/{i}")
# Hard links count and are released too.
os.mknod("/dev/shm/w/one", stat.S_IFCHR, 0)
for i in range(100):
    os.link("/dev/shm/w/one", f"/dev/shm/w/{i}")
    os.remove(f"/dev/shm/w/{i}")
os.remove("/dev/shm/w/one")
os.rmdir("/dev/shm/w")
'`)
	if got != "No space left on device" {
		t.Errorf("creating 20,000 whiteouts where %s files are allowed: %q", before, got)
	}
	if after := b.sh("user", left); after != before {
		t.Errorf("%s files were possible before, and %s after all were removed", before, after)
	}
}
