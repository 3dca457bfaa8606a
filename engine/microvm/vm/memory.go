package vm

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// reportingOrder is the kernel parameter for the smallest piece of free memory that it gives
// back to the host: 4096 bytes shifted by this much.
const reportingOrder = "/sys/module/page_reporting/parameters/page_reporting_order"

// reportSmallPieces makes the kernel give back single pages. By default it reports pieces of 2
// MB, and one page of a file in each of them would retain all of it. Some kernel versions reset
// the parameter of the command line when the balloon's driver loads, so it is set afterwards.
func reportSmallPieces() error {
	if err := os.WriteFile(reportingOrder, []byte("0"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("have the kernel give memory back: %w", err)
	}
	return nil
}

// keepFree makes the kernel reserve only as much free memory as a kernel without huge pages;
// with them it would reserve 64 MB. It must be set again when memory was added or removed.
func keepFree() error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return err
	}
	kb := uint64(info.Totalram) * uint64(info.Unit) >> 10
	return write("/proc/sys/vm/min_free_kbytes", strconv.Itoa(int(math.Sqrt(float64(kb*16)))))
}

// memoryLimit is the sandbox's, in bytes.
var memoryLimit atomic.Int64

// overPause is the interval of reports about a sandbox that stays over its limit.
const overPause = 10 * time.Millisecond

// watchMemory tells the host when the sandbox has no memory left, repeatedly while that lasts,
// and once when it no longer does. The kernel wakes it when the threshold is crossed; it polls
// nothing.
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
		for told := false; ; told = true {
			n := used()
			over := n > memoryLimit.Load()
			if over || told {
				sendNews(b.news, News{MemoryBytes: n})
			}
			if !over {
				break
			}
			time.Sleep(overPause)
		}
	}
}
