package keepalive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"time"
)

// MaxHeader bounds the header of an answer, in bytes.
const MaxHeader = 1 << 20

var errTooLong = fmt.Errorf("the header of the answer is longer than %d bytes", MaxHeader)

// conn is a connection to a server. It carries one request at a time.
type conn struct {
	net.Conn
	of     *Conns
	port   uint16
	limit  io.LimitedReader
	in     *bufio.Reader
	out    *bufio.Writer
	reused bool      // it has answered before
	since  time.Time // it is idle; guarded by Conns.mu
}

func newConn(m *Conns, nc net.Conn, port uint16) *conn {
	c := &conn{Conn: nc, of: m, port: port, limit: io.LimitedReader{R: nc}}
	c.in, c.out = bufio.NewReader(&c.limit), bufio.NewWriter(nc)
	return c
}

// quiet reports whether nothing has arrived since the last answer.
func (c *conn) quiet() bool {
	q, ok := c.Conn.(quieter)
	return ok && c.in.Buffered() == 0 && q.Quiet()
}

// abort closes the connection while another goroutine may be reading or writing.
func (c *conn) abort() {
	_ = c.SetDeadline(time.Unix(1, 0))
	_ = c.Close()
}

// exchange sends a request and reads the header of the answer. It ends with the request's
// context, and so does the answer's body. In the end the connection is kept or closed.
func (c *conn) exchange(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	stop := context.AfterFunc(ctx, c.abort)
	res, err := c.ask(req)
	if err != nil {
		stop()
		c.Close()
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, err
	}
	b := &body{inner: res.Body, conn: c, ctx: ctx, stop: stop, last: res.Close}
	if res.Body == http.NoBody {
		b.finish(io.EOF)
	} else {
		res.Body = b
	}
	return res, nil
}

func (c *conn) ask(req *http.Request) (*http.Response, error) {
	if err := req.Write(c.out); err != nil {
		return nil, err
	}
	if err := c.out.Flush(); err != nil {
		return nil, err
	}
	c.limit.N = MaxHeader
	if err := c.begin(); err != nil {
		return nil, err
	}
	for {
		res, err := http.ReadResponse(c.in, req)
		switch {
		case err != nil && c.limit.N <= 0:
			return nil, errTooLong
		case err != nil:
			return nil, noEnd(err)
		case res.StatusCode == http.StatusSwitchingProtocols:
			return nil, errors.New("the server changed to another protocol without having been asked to")
		case res.StatusCode >= 200:
			c.limit.N = math.MaxInt64
			return res, nil
		}
		if t := httptrace.ContextClientTrace(req.Context()); t != nil && t.Got1xxResponse != nil {
			if err := t.Got1xxResponse(res.StatusCode, textproto.MIMEHeader(res.Header)); err != nil {
				return nil, err
			}
		}
	}
}

// begin waits for the answer's first byte.
func (c *conn) begin() error {
	if c.reused {
		_, err := c.in.Peek(1)
		return noEnd(err)
	}
	w := c.of.await(c.port)
	_, err := c.in.Peek(1)
	w.arrived(err == nil)
	return noEnd(err)
}

// noEnd turns an end of stream into an error: an answer was due.
func noEnd(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// body is an answer's body.
type body struct {
	inner io.Reader
	conn  *conn
	ctx   context.Context
	stop  func() bool // cancels the abort at the end of the context
	last  bool        // the server will close the connection
	over  error       // Read's result from now on
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if b.over != nil {
		return 0, b.over
	}
	n, err := b.inner.Read(p)
	if err == nil {
		return n, nil
	}
	if cause := context.Cause(b.ctx); cause != nil && err != io.EOF {
		err = cause
	}
	b.finish(err)
	return n, err
}

// Close implements io.Closer. It does not wait for the rest of a body, but closes the
// connection.
func (b *body) Close() error {
	b.finish(http.ErrBodyReadAfterClose)
	return nil
}

// finish releases the connection, which is kept if the answer is complete, and nothing followed
// it.
func (b *body) finish(why error) {
	if b.over != nil {
		return
	}
	b.over = why
	if b.stop() && why == io.EOF && !b.last && b.conn.quiet() {
		b.conn.of.keep(b.conn)
		return
	}
	b.conn.Close()
}
