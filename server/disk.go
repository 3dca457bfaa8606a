package server

import (
	"math"

	"github.com/bothy-dev/bothy/internal/disk"
)

// fullBelow is the free space in bytes below which no sandbox starts. The rest is reserved for
// the server's own records.
const fullBelow = 16 << 20

// freeBytes returns the free space on a folder's disk, or MaxUint64 if it cannot be determined.
func freeBytes(dir string) uint64 {
	free, err := disk.Free(dir)
	if err != nil {
		return math.MaxUint64
	}
	return uint64(free)
}
