package microvm

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ramName is the name under which the kernel lists the memory that QEMU makes for a machine.
const ramName = "/memfd:memory-backend-memfd"

// findRAM returns the address in QEMU of a machine's memory, which has the given size in bytes.
func findRAM(pid int, size uint64) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if !strings.Contains(line, ramName) {
			continue
		}
		from, rest, _ := strings.Cut(line, "-")
		to, _, _ := strings.Cut(rest, " ")
		start, err1 := strconv.ParseUint(from, 16, 64)
		end, err2 := strconv.ParseUint(to, 16, 64)
		if err := errors.Join(err1, err2); err != nil {
			return 0, err
		}
		if end-start == size {
			return start, nil
		}
	}
	return 0, errors.New("QEMU has no memory for the machine")
}

// mapOver makes a stopped process map its descriptor fd privately over its memory at an address:
// reads come from the file, writes stay private. QEMU itself would need to be able to write to
// the file, which other machines share.
//
// QEMU can do the same from version 8.2 on, but then does not give memory back.
func mapOver(pid int, addr, size uint64, fd int) error {
	got, err := inject(pid, unix.SYS_MMAP, addr, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE, uint64(fd), 0)
	if err != nil {
		return fmt.Errorf("map the snapshot's memory: %w", err)
	}
	if got != addr {
		return fmt.Errorf("map the snapshot's memory: %w", syscall.Errno(-int64(got)))
	}
	return nil
}

// errBusy is the error for a process that is not waiting in a system call.
var errBusy = errors.New("QEMU is not waiting in a system call")

// inject makes the main thread of a process execute an additional system call.
func inject(pid int, nr uint64, args ...uint64) (result uint64, err error) {
	for range 1000 {
		if result, err = injectNow(pid, nr, args...); !errors.Is(err, errBusy) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return result, err
}

// awaitStop waits until the tracee has stopped.
func awaitStop(pid int) error {
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(pid, &ws, unix.WALL, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case ws.Stopped():
			return nil
		default:
			return errors.New("QEMU ended")
		}
	}
}
