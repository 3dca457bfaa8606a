package wire

import "bufio"

// buffered reads a byte, if the reader has a buffer.
func (r *Reader) buffered() (byte, bool) {
	b, ok := r.Reader.(*bufio.Reader)
	if !ok {
		return 0, false
	}
	c, err := b.ReadByte()
	if err != nil {
		panic(err)
	}
	return c, true
}

// buffered writes a number of one byte, if the writer has a buffer.
func (w *Writer) buffered(u Uint) bool {
	b, ok := w.Writer.(*bufio.Writer)
	if !ok || u >= 0x80 {
		return false
	}
	if err := b.WriteByte(byte(u)); err != nil {
		panic(err)
	}
	return true
}
