package state

import (
	"bufio"
	"io"

	"gvisor.dev/gvisor/pkg/tuning"
)

var direct = tuning.On("byte-buffer")

// readBuffer returns the buffer that r reads from, or r if it has none.
func readBuffer(r io.Reader) io.Reader {
	if s, ok := r.(interface{ ReadBuffer() *bufio.Reader }); ok && direct && s.ReadBuffer() != nil {
		return s.ReadBuffer()
	}
	return r
}

// writeBuffer returns the buffer that w writes to, or w if it has none.
func writeBuffer(w io.Writer) io.Writer {
	if s, ok := w.(interface{ WriteBuffer() *bufio.Writer }); ok && direct && s.WriteBuffer() != nil {
		return s.WriteBuffer()
	}
	return w
}
