package server

import (
	"math"

	"github.com/bothy-dev/bothy/internal/disk"
)

// fullBelow is the room in bytes below which no sandbox is started: it is what the
// server itself needs to keep storing what happens.
const fullBelow = 16 << 20

// freeBytes is the room on the disk of a folder, or much where that is not known.
func freeBytes(dir string) uint64 {
	free, err := disk.Free(dir)
	if err != nil {
		return math.MaxUint64
	}
	return uint64(free)
}
