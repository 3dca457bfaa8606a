//go:build gvisorpatched

package entry

import (
	"os"
	"testing"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/memutil"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

// TestAllocationsAreReported allocates memory as the library does for programs.
func TestAllocationsAreReported(t *testing.T) {
	memory := newMemoryFile(t)
	var told uint64
	pgalloc.OnAllocate = func(f *pgalloc.MemoryFile, bytes uint64) {
		if f == memory {
			told += bytes
		}
	}
	defer func() { pgalloc.OnAllocate = nil }()
	r, err := memory.Allocate(3*hostarch.PageSize, pgalloc.AllocOpts{Kind: usage.Anonymous})
	if err != nil {
		t.Fatal(err)
	}
	defer memory.DecRef(r)
	if told != 3*hostarch.PageSize {
		t.Errorf("%d bytes were reported", told)
	}
}

// newMemoryFile makes a memory file like a sentry's, which is removed when the test ends.
func newMemoryFile(t *testing.T) *pgalloc.MemoryFile {
	t.Helper()
	fd, err := memutil.CreateMemFD("memory", 0)
	if err != nil {
		t.Fatal(err)
	}
	f, err := pgalloc.NewMemoryFile(os.NewFile(uintptr(fd), "memory"), pgalloc.MemoryFileOpts{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Destroy)
	return f
}
