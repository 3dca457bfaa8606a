package client

import (
	"io"
	"net"
	"sync"
)

// bulkSize is the size of the pieces in which large data is sent to a guest. Each piece costs a
// context switch on either side, and fills whole packets.
const bulkSize = 256 << 10

var bulkBuffers = sync.Pool{New: func() any { return new([bulkSize]byte) }}

// bulkConn is a connection that takes the body of a request in large pieces.
type bulkConn struct{ net.Conn }

// ReadFrom implements io.ReaderFrom, for the HTTP transport.
func (c bulkConn) ReadFrom(r io.Reader) (int64, error) {
	buf := bulkBuffers.Get().(*[bulkSize]byte)
	defer bulkBuffers.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{c.Conn}, struct{ io.Reader }{r}, buf[:])
}
