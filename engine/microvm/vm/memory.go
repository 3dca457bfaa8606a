package vm

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// memoryLimit is the sandbox's, in bytes.
var memoryLimit atomic.Int64

// overPause is between two reports of a sandbox that stays over its limit.
const overPause = 10 * time.Millisecond

// watchMemory tells the host when the sandbox has no memory left, and again while
// that is so. The kernel wakes it when the line is crossed; it looks at nothing else.
func (b *box) watchMemory() {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, sandboxGroup+"/memory.events", unix.IN_MODIFY); err != nil {
		return
	}
	buf := make([]byte, 4096)
	for {
		if n, err := unix.Read(fd, buf); err != nil && err != unix.EINTR || n == 0 {
			return
		}
		for {
			n := used()
			if n <= memoryLimit.Load() {
				break
			}
			tell(b.news, News{MemoryBytes: n})
			time.Sleep(overPause)
		}
	}
}
