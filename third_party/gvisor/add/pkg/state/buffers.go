package state

import (
	"bufio"
	"io"
)

// readBuffer returns the buffer that r reads from, or r where it has none.
func readBuffer(r io.Reader) io.Reader {
	if s, ok := r.(interface{ ReadBuffer() *bufio.Reader }); ok && s.ReadBuffer() != nil {
		return s.ReadBuffer()
	}
	return r
}

// writeBuffer returns the buffer that w writes to, or w where it has none.
func writeBuffer(w io.Writer) io.Writer {
	if s, ok := w.(interface{ WriteBuffer() *bufio.Writer }); ok && s.WriteBuffer() != nil {
		return s.WriteBuffer()
	}
	return w
}
