package sentrycmd

import (
	"golang.org/x/sys/unix"

	"gvisor.dev/gvisor/pkg/tuning"
)

// noneIsDirectory reports whether it is sure that no open descriptor is a directory. It
// is where the host's kernel says how many are open (Linux 6.2), and all of those are
// found among the first 1,000.
func noneIsDirectory() bool {
	if !tuning.On("directories") {
		return false
	}
	var stat unix.Stat_t
	if unix.Stat("/proc/self/fd", &stat) != nil || stat.Size == 0 {
		return false
	}
	left := stat.Size
	for fd := 0; left > 0 && fd < 1000; fd++ {
		if unix.Fstat(fd, &stat) != nil {
			continue
		}
		if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
			return false
		}
		left--
	}
	return left == 0
}
