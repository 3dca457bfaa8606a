package vdsodata

import "bytes"

func init() { Binary = withoutBootTime(Binary) }

// withoutBootTime makes the vDSO's clock_gettime, whose jump table ends with CLOCK_BOOTTIME as
// another name of CLOCK_MONOTONIC, end before that: it makes a system call for clocks behind it.
func withoutBootTime(vdso []byte) []byte {
	return bytes.Replace(vdso, []byte("\x83\xff\x07\x77"), []byte("\x83\xff\x06\x77"), 1) // cmp $7, %edi; ja
}
