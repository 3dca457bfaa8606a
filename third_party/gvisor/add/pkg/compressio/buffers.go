package compressio

import "bufio"

// ReadBuffer returns the underlying reader, or nil if the data is hashed.
func (r *SimpleReader) ReadBuffer() *bufio.Reader {
	if r.h != nil {
		return nil
	}
	return r.bin
}

// WriteBuffer returns the underlying writer, or nil if the data is hashed.
func (w *SimpleWriter) WriteBuffer() *bufio.Writer { return w.bufOut }
