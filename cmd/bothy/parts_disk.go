package main

import (
	"context"
	"errors"
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// fullBelow is the room in bytes below which no sandbox is started: it is what the
// server itself needs to go on storing what happens.
const fullBelow = 16 << 20

// isDiskFull reports whether an error says that there is no room.
func isDiskFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// diskAgain is how soon what a full disk did not allow is tried again.
const diskAgain = 10 * time.Second

// untilItWorks calls do from time to time until it succeeds, or ctx ends.
func untilItWorks(ctx context.Context, do func() error) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(diskAgain):
		}
		if do() == nil {
			return
		}
	}
}

// freeBytes is the room on the disk of a folder, or much where that is not known.
func freeBytes(dir string) uint64 {
	var disk unix.Statfs_t
	if unix.Statfs(dir, &disk) != nil {
		return math.MaxUint64
	}
	return disk.Bavail * uint64(disk.Bsize)
}
