package entry

import (
	"encoding/binary"
	"unsafe"

	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/arch"
	"gvisor.dev/gvisor/pkg/sentry/kernel"

	"github.com/bothy-dev/bothy/guest/abi"
)

const (
	callSize     = int(unsafe.Sizeof(abi.BatchCall{}))
	resultOffset = unsafe.Offsetof(abi.BatchCall{}.Result)
	// mostCalls is the most calls in a batch.
	mostCalls = 64
)

// calling lets process 1 execute a batch of system calls; see abi.PrctlBatch. They pass the same
// guards as single calls.
func calling(prctl kernel.SyscallFn) kernel.SyscallFn {
	return func(t *kernel.Task, number uintptr, args arch.SyscallArguments) (uintptr, *kernel.SyscallControl, error) {
		if args[0].Int() != abi.PrctlBatch || !isProcessOne(t) && !isBegunByProcessOne(t) {
			return prctl(t, number, args)
		}
		first, n, goOn := args[1].Pointer(), args[2].Uint(), args[3].Int() != 0
		if n > mostCalls {
			return 0, nil, linuxerr.EINVAL
		}
		var (
			r       uintptr
			control *kernel.SyscallControl
			err     error
		)
		for i := range n {
			if r, control, err = call(t, number, first+hostarch.Addr(int(i)*callSize)); control != nil || err != nil && !goOn {
				break
			}
		}
		return r, control, err
	}
}

// call executes the system call described at an address, and writes its result
// there. It refuses calls that may not be in a batch: a batch inside a batch would
// never end.
func call(t *kernel.Task, not uintptr, at hostarch.Addr) (uintptr, *kernel.SyscallControl, error) {
	var b [callSize]byte
	if _, err := t.CopyInBytes(at, b[:]); err != nil {
		return 0, nil, err
	}
	number := uintptr(binary.NativeEndian.Uint32(b[:]))
	fn := t.SyscallTable().Lookup(number)
	if fn == nil || number == not {
		return 0, nil, linuxerr.ENOSYS
	}
	var args arch.SyscallArguments
	for i := range args {
		args[i].Value = uintptr(binary.NativeEndian.Uint64(b[8+8*i:]))
	}
	r, control, err := fn(t, number, args)
	if control != nil {
		// The task may have been replaced already, or be stopped.
		return r, control, err
	}
	result := int64(r)
	if err != nil {
		result = -int64(kernel.ExtractErrno(err, int(number)))
	}
	binary.NativeEndian.PutUint64(b[:8], uint64(result))
	if _, cerr := t.CopyOutBytes(at+hostarch.Addr(resultOffset), b[:8]); err == nil {
		err = cerr
	}
	return r, nil, err
}
