package command

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/guest/abi"
)

// row is a batch of system calls that the kernel executes in one trap, if it can: see
// abi.PrctlBatch.
//
// The kernel gets addresses as numbers, which the garbage collector does not recognise
// as pointers. So the objects are pinned until release.
type row struct {
	calls []abi.BatchCall
	pins  runtime.Pinner
}

// release ends the use of a row, and must always be called.
func (r *row) release() { r.pins.Unpin() }

func (r *row) add(number uint32, args ...uint64) {
	c := abi.BatchCall{Number: number}
	copy(c.Args[:], args)
	r.calls = append(r.calls, c)
}

// pointer returns an address for an argument, and pins the object.
func pointer[T any](r *row, p *T) uint64 {
	r.pins.Pin(p)
	return uint64(uintptr(unsafe.Pointer(p)))
}

// text is pointer for a string.
func text(r *row, s string) (uint64, error) {
	p, err := syscall.BytePtrFromString(s)
	if err != nil {
		return 0, err
	}
	return pointer(r, p), nil
}

// vector is pointer for strings, ended by nil.
func vector(r *row, list []string) (uint64, error) {
	p, err := syscall.SlicePtrFromStrings(list)
	if err != nil {
		return 0, err
	}
	for _, one := range p {
		if one != nil {
			r.pins.Pin(one)
		}
	}
	return pointer(r, &p[0]), nil
}

// run executes the calls. It returns the error of the first that fails.
func (r *row) run() error { return r.make(false) }

// runAll executes all calls, even after one that fails.
func (r *row) runAll() { _ = r.make(true) }

func (r *row) make(goOn bool) error {
	var on uintptr
	if goOn {
		on = 1
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_PRCTL, abi.PrctlBatch, r.address(), uintptr(len(r.calls)), on, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// address returns the address of the calls. It is valid until release, unless calls are
// added.
func (r *row) address() uintptr {
	r.pins.Pin(&r.calls[0])
	return uintptr(unsafe.Pointer(&r.calls[0]))
}

// addressOf returns the address of one of them.
func (r *row) addressOf(i int) uint64 {
	return uint64(r.address()) + uint64(i)*uint64(unsafe.Sizeof(abi.BatchCall{}))
}

// hasRows reports whether the kernel executes batches for this process.
func hasRows() bool {
	r := row{calls: make([]abi.BatchCall, 0, 1)}
	defer r.release()
	r.add(unix.SYS_GETPID)
	return r.run() == nil && r.calls[0].Result > 0
}
