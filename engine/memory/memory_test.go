package memory_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/engine/memory"
)

func limits(mb int) bothy.Limits {
	return bothy.Limits{MemoryMB: mb, Processes: bothy.ProcessesFor(mb)}
}

// TestDocumentedNumbers checks the numbers in docs/limits.md.
func TestDocumentedNumbers(t *testing.T) {
	text, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Join(strings.Fields(string(text)), " ")
	c := config.Default()
	rows := []string{
		fmt.Sprintf("%d MiB by default, and from %d to %d", bothy.DefaultMemoryMB, bothy.MinMemoryMB, bothy.MaxMemoryMB),
		fmt.Sprintf("`sandboxes.min_free_memory_mb` | %d MiB", c.Sandboxes.MinFreeMemoryMB),
		fmt.Sprintf("`pool.min_free_memory_mb` | %d MiB", c.Pool.MinFreeMemoryMB),
		fmt.Sprintf("%d processes for each MiB, at most %d", bothy.ProcessesPerMB, bothy.MaxProcesses),
		fmt.Sprintf("%d MiB for gVisor's kernel and %d KiB for each process", memory.GVisorHeadroom>>20, memory.GVisorProcess>>10),
		fmt.Sprintf("%d MiB for QEMU", memory.MicroVMHeadroom>>20),
		fmt.Sprintf("up to %d times that", memory.SnapshotFactor),
	}
	for name, s := range bothy.Sizes {
		rows = append(rows, fmt.Sprintf("| `%s` | %d MiB |", name, s.MemoryMB))
	}
	for _, p := range bothy.Plans {
		if p.MemoryMB > 0 {
			rows = append(rows, fmt.Sprintf("| `%s` | %d MiB |", p.Name, p.MemoryMB))
		}
	}
	for _, mb := range []int{512, 8192} {
		rows = append(rows, fmt.Sprintf("| %d MiB | %d MiB |", mb, memory.GVisor(limits(mb))>>20))
	}
	for _, want := range rows {
		if !strings.Contains(page, want) {
			t.Errorf("docs/limits.md does not say %q", want)
		}
	}
}

func TestRestoreIsBounded(t *testing.T) {
	l := limits(512)
	if got := memory.GVisorRestore(l, 1<<20); got != memory.GVisor(l)+memory.RestoreFactor<<20 {
		t.Errorf("a small state takes %d", got)
	}
	if got := memory.GVisorRestore(l, 1<<40); got != memory.GVisorSnapshot(l) {
		t.Errorf("a state that was forged to take everything takes %d", got)
	}
}
