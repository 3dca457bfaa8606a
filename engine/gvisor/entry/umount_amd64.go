package entry

import (
	"bytes"
	"encoding/binary"
)

// umountPath is what umountCode unmounts.
const umountPath = "/proc\x00"

// umountCode waits for one byte on descriptor 3, unmounts umountPath, which follows
// it, and exits with 0 if all of that worked.
var umountCode = []byte{
	0x31, 0xc0, // xor eax, eax (read)
	0x6a, 0x03, 0x5f, // push 3; pop rdi
	0x50,             // push rax
	0x48, 0x89, 0xe6, // mov rsi, rsp
	0x6a, 0x01, 0x5a, // push 1; pop rdx
	0x0f, 0x05, // syscall
	0xff, 0xc8, // dec eax
	0x75, 0x11, // jnz end
	0xb8, 0xa6, 0x00, 0x00, 0x00, // mov eax, 166 (umount2)
	0x48, 0x8d, 0x3d, 0x12, 0x00, 0x00, 0x00, // lea rdi, [rip+18] (umountPath)
	0x6a, 0x02, 0x5e, // push MNT_DETACH; pop rsi
	0x0f, 0x05, // syscall
	0x31, 0xff, // end: xor edi, edi
	0x85, 0xc0, // test eax, eax
	0x40, 0x0f, 0x95, 0xc7, // setne dil
	0x6a, 0x3c, 0x58, // push 60 (exit); pop rax
	0x0f, 0x05, // syscall
}

// umountProgram is a static program of one page with nothing but that.
func umountProgram() []byte {
	const (
		base       = 0x400000
		headerSize = 64 + 56
	)
	size := uint64(headerSize + len(umountCode) + len(umountPath))
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01")
	b.Write(make([]byte, 9))
	for _, v := range []any{
		// An executable for x86-64; where it begins, and where the segments are told.
		uint16(2), uint16(62), uint32(1), uint64(base + headerSize), uint64(64), uint64(0), uint32(0),
		uint16(64), uint16(56), uint16(1), uint16(64), uint16(0), uint16(0),
		// All of the file is one segment that may be read and executed.
		uint32(1), uint32(5), uint64(0), uint64(base), uint64(base), size, size, uint64(0x1000),
	} {
		binary.Write(&b, binary.LittleEndian, v)
	}
	b.Write(umountCode)
	b.WriteString(umountPath)
	return b.Bytes()
}
