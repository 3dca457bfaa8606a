package compressio

import "bufio"

// ReadBuffer returns what the data is read from, or nil where it is hashed.
func (r *SimpleReader) ReadBuffer() *bufio.Reader {
	if r.h != nil {
		return nil
	}
	return r.bin
}

// WriteBuffer returns what the data is written to, or nil where it is hashed.
func (w *SimpleWriter) WriteBuffer() *bufio.Writer { return w.bufOut }
