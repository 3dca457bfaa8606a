package lab

import (
	"bufio"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSharedMemoryIsCountedOnce checks a process, one that shares its memory like a child of vfork before
// it executes a program, and one that does not.
func TestSharedMemoryIsCountedOnce(t *testing.T) {
	if _, _, e := unix.Syscall6(unix.SYS_KCMP, uintptr(syscall.Getpid()), uintptr(syscall.Getpid()), kcmpVM, 0, 0, 0); e == unix.ENOSYS {
		t.Skip("this kernel cannot compare processes")
	}
	python := exec.Command("python3", "-c", `
import ctypes
libc = ctypes.CDLL(None)
stack = ctypes.create_string_buffer(1 << 16)
CLONE_VM = 0x100
child = libc.clone(ctypes.cast(libc.pause, ctypes.c_void_p), ctypes.c_void_p(ctypes.addressof(stack) + len(stack) - 64), CLONE_VM, None)
print(child, flush=True)
libc.pause()
`)
	out, err := python.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := python.Start(); err != nil {
		t.Fatal(err)
	}
	defer python.Wait()
	defer python.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || child <= 0 {
		t.Fatalf("%q, %v", line, err)
	}
	defer syscall.Kill(child, syscall.SIGKILL)
	own, parent, shares := strconv.Itoa(syscall.Getpid()), strconv.Itoa(python.Process.Pid), strconv.Itoa(child)
	if got := memories([]string{own, parent, shares}); !slices.Equal(got, []string{own, parent}) {
		t.Errorf("of %s, %s and its %s these have memories: %v", own, parent, shares, got)
	}
}
