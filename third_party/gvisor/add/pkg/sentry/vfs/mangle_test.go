package vfs

import "testing"

func TestManglePath(t *testing.T) {
	for path, want := range map[string]string{"/a/b": "/a/b", "/a b\t\\\n": `/a\040b\011\134\012`} {
		if got := manglePath(path); got != want {
			t.Errorf("%q becomes %q, want %q", path, got, want)
		}
	}
	if n := testing.AllocsPerRun(10, func() { manglePath("/usr/lib") }); n > 0 {
		t.Errorf("a plain path costs %v allocations", n)
	}
}
