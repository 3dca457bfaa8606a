package cgroup

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestMemoryLimit(t *testing.T) {
	one, two := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(one+"/memory.limit_in_bytes", "9223372036854771712\n")
	write(one+"/a/memory.limit_in_bytes", "5000\n")
	write(one+"/a/b/memory.limit_in_bytes", "6000\n")
	write(two+"/a/memory.max", "7000\n")
	write(two+"/a/b/memory.max", "max\n")
	v1, v2 := map[string]string{"memory": one}, map[string]string{unified: two}
	for _, c := range []struct {
		list    string
		mounted map[string]string
		want    int64
	}{
		{"4:cpu,memory:/a/b\n2:pids:/x\n", v1, 5000}, {"4:memory:/\n", v1, 9223372036854771712}, {"4:memory:/a/b\n", nil, math.MaxInt64},
		{"0::/a/b\n", v2, 7000}, {"0::/\n", v2, math.MaxInt64}, {"0::/../../a\n", v2, 7000},
		{"4:memory:/a\n0::/a\n", map[string]string{"memory": one, unified: two}, 5000}, {"", v2, math.MaxInt64}, {"x\n", v2, math.MaxInt64},
	} {
		if got := memoryLimit(c.list, c.mounted); got != c.want {
			t.Errorf("%q: %d, want %d", c.list, got, c.want)
		}
	}
}
