package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// client reads what the guest sends on a connection that must be checked at its beginning or
// throughout. It keeps what was read and not yet forwarded.
type client struct {
	*guestConn
	buf []byte
	// heads counts what buf takes beyond firstBytes: counted bytes of this connection.
	heads   *quota
	counted atomic.Int64
	// patience is how long the guest may take for one message.
	patience time.Duration
}

// more reads at least one more byte, up to a total of limit.
func (c *client) more(limit int) error {
	if len(c.buf) >= limit {
		return errors.New("the beginning of the connection is too long")
	}
	if cap(c.buf)-len(c.buf) < 1024 {
		if err := c.grow(max(firstBytes, 2*len(c.buf))); err != nil {
			return err
		}
	}
	room := c.buf[len(c.buf):min(cap(c.buf), limit)]
	n, err := c.guestConn.Read(room)
	c.buf = c.buf[:len(c.buf)+n]
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// grow gives buf room for size bytes.
func (c *client) grow(size int) error {
	more := max(0, int64(size)-firstBytes-c.counted.Load())
	if !c.heads.take(more) {
		return errors.New("too many connections of the sandbox are saying at once which host they are for")
	}
	c.counted.Add(more)
	c.buf = append(make([]byte, 0, size), c.buf...)
	return nil
}

// uncount puts back what was counted, when buf is given up. A server that reads the connection may
// do so at the same time.
func (c *client) uncount() { c.heads.put(c.counted.Swap(0)) }

// Read implements io.Reader over the kept bytes and then the connection.
func (c *client) Read(p []byte) (int, error) {
	if len(c.buf) > 0 {
		n := copy(p, c.buf)
		c.drop(n)
		return n, nil
	}
	return c.guestConn.Read(p)
}

func (c *client) drop(n int) {
	c.buf = c.buf[n:]
	if len(c.buf) == 0 {
		c.buf = nil
		c.uncount()
	}
}

// pass forwards the first n kept bytes.
func (c *client) pass(n int, out io.Writer, count func(int)) error {
	_, err := out.Write(c.buf[:n])
	count(n)
	c.drop(n)
	return err
}

// passAll forwards the kept bytes and then everything that follows.
func (c *client) passAll(out io.Writer, count func(int)) error {
	if err := c.pass(len(c.buf), out, count); err != nil {
		return err
	}
	return c.sendTo(out, count)
}

// hello reads a whole ClientHello.
func (c *client) hello() (sni string, used int, err error) {
	for {
		sni, used, err = parseHello(c.buf)
		if err != errShort {
			return sni, used, err
		}
		if err := c.more(maxHello); err != nil {
			return "", 0, err
		}
	}
}

// forwardTLS forwards a connection whose ClientHello, already in c, was accepted. A server may
// ask for a second one, also in clear text: it must name the same server.
func (c *client) forwardTLS(name string, used int, out io.Writer, count func(int)) error {
	for {
		if err := c.pass(used, out, count); err != nil {
			return err
		}
		again, err := c.passChangeCipher(out, count)
		if err == io.EOF {
			return c.pass(len(c.buf), out, count)
		}
		if err != nil {
			return err
		}
		if !again {
			return c.passAll(out, count)
		}
		var sni string
		if sni, used, err = c.hello(); err != nil {
			return err
		}
		if sni != name {
			return fmt.Errorf("the second TLS ClientHello is for %s, not for %s", sni, name)
		}
	}
}

// passChangeCipher forwards records that only mark a change of cipher, and reports whether
// another ClientHello follows.
func (c *client) passChangeCipher(out io.Writer, count func(int)) (again bool, err error) {
	for {
		for len(c.buf) < recordHeader+1 {
			if err := c.more(maxHello); err != nil {
				return false, err
			}
		}
		if c.buf[0] != recordChangeCipher {
			return c.buf[0] == recordHandshake && c.buf[recordHeader] == clientHelloMessage, nil
		}
		n := recordHeader + (int(c.buf[3])<<8 | int(c.buf[4]))
		if n > recordHeader+8 {
			return false, errNotHello
		}
		for len(c.buf) < n {
			if err := c.more(maxHello); err != nil {
				return false, err
			}
		}
		if err := c.pass(n, out, count); err != nil {
			return false, err
		}
	}
}

// request reads the head of the next HTTP request.
func (c *client) request() (*request, error) {
	for {
		for bytes.HasPrefix(c.buf, []byte("\r\n")) {
			c.drop(2)
		}
		if n := headEnd(c.buf); n > 0 {
			r, err := parseRequest(c.buf[:n])
			if err != nil {
				return nil, refusal(err.Error())
			}
			c.drop(n)
			return r, nil
		}
		if err := c.more(maxHead); err != nil {
			return nil, err
		}
	}
}

// forwardHTTP forwards requests, starting with first, as long as each is for name. upgraded
// reports whether the server agreed to WebSocket; after that the bytes are not checked.
func (c *client) forwardHTTP(name string, first *request, upgraded func() bool, out io.Writer, count func(int)) error {
	for r := first; ; {
		if _, err := out.Write(r.head); err != nil {
			return err
		}
		count(len(r.head))
		if err := c.forwardBody(r, out, count); err != nil {
			return err
		}
		if r.webSocket && upgraded() {
			return c.passAll(out, count)
		}
		var err error
		if r, err = c.nextRequest(); r == nil {
			return err
		}
		if r.host != name {
			return refusal(fmt.Sprintf("the HTTP request is for %s, and the connection is to %s", r.host, name))
		}
		// Only the first request of a connection can leave HTTP: later, the server's agreement
		// could not be told from answers to earlier requests.
		if r.webSocket {
			return refusal("WebSocket is possible on a fresh connection only")
		}
	}
}

// nextRequest waits for another request without a time limit, and then briefly for its head. At
// the end of the connection it returns nothing.
func (c *client) nextRequest() (*request, error) {
	if len(c.buf) == 0 {
		if err := c.more(maxHead); err == io.EOF {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	c.setPatience()
	defer c.clearPatience()
	return c.request()
}

func (c *client) forwardBody(r *request, out io.Writer, count func(int)) error {
	if r.body == bodyLength {
		return c.passN(r.length, out, count)
	}
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		n, err := parseChunkSize(line)
		if err != nil {
			return refusal(err.Error())
		}
		if n == 0 {
			return c.forwardTrailer(out, count)
		}
		if _, err := fmt.Fprintf(out, "%x\r\n", n); err != nil {
			return err
		}
		if err := c.passN(n, out, count); err != nil {
			return err
		}
		if line, err := c.line(); err != nil || line != "" {
			return refusal("a chunk of the HTTP request's body is malformed")
		}
		if _, err := io.WriteString(out, "\r\n"); err != nil {
			return err
		}
	}
}

// forwardTrailer ends a chunked body, with its trailer lines.
func (c *client) forwardTrailer(out io.Writer, count func(int)) error {
	text, total := "0\r\n", 0
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		if _, err := parseFields([]string{line}); line != "" && err != nil || total > maxHead {
			return refusal("the trailer of the HTTP request is malformed")
		}
		text += line + "\r\n"
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
		count(len(text))
		if line == "" {
			return nil
		}
		total += len(text)
		text = ""
	}
}

// line reads one line that ends in CRLF, and returns it without that.
func (c *client) line() (string, error) {
	for {
		if i := bytes.IndexByte(c.buf, '\n'); i >= 0 {
			line, ok := strings.CutSuffix(string(c.buf[:i]), "\r")
			if !ok || strings.ContainsAny(line, "\r\x00") {
				return "", refusal("the HTTP request has stray control characters")
			}
			c.drop(i + 1)
			return line, nil
		}
		if len(c.buf) >= maxLine {
			return "", refusal("a line of the HTTP request is too long")
		}
		if err := c.more(maxHead); err != nil {
			return "", err
		}
	}
}

// passN forwards the next n bytes.
func (c *client) passN(n int64, out io.Writer, count func(int)) error {
	k := min(n, int64(len(c.buf)))
	if err := c.pass(int(k), out, count); err != nil {
		return err
	}
	return c.sendN(out, n-k, count)
}

// refusal is an error that is a decision of the policy, not a failure.
type refusal string

func (r refusal) Error() string { return string(r) }

// setPatience limits the time until the guest has sent its message.
func (c *client) setPatience() { _ = c.SetReadDeadline(time.Now().Add(c.patience)) }

func (c *client) clearPatience() { _ = c.SetReadDeadline(time.Time{}) }

// writeAndClose writes b, and gives the guest a moment to read it and to close. Closing immediately,
// with unread bytes of the guest, would reset the connection and lose b.
func (c *client) writeAndClose(b []byte) {
	_ = c.SetDeadline(time.Now().Add(closeTime))
	if _, err := c.guestConn.Write(b); err != nil {
		return
	}
	_ = c.CloseWrite()
	_, _ = io.CopyN(io.Discard, c.guestConn, maxHead)
}

var _ net.Conn = (*client)(nil)
