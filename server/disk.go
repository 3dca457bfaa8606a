package server

import (
	"math"

	"golang.org/x/sys/unix"
)

// fullBelow is the room in bytes below which no sandbox is started: it is what the
// server itself needs to go on storing what happens.
const fullBelow = 16 << 20

// freeBytes is the room on the disk of a folder, or much where that is not known.
func freeBytes(dir string) uint64 {
	var disk unix.Statfs_t
	if unix.Statfs(dir, &disk) != nil {
		return math.MaxUint64
	}
	return disk.Bavail * uint64(disk.Bsize)
}
