package agent

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/guest/abi"
	"github.com/bothy-dev/bothy/guest/files"
)

// pourFrom is the length in bytes from which a body is poured.
const pourFrom = 1 << 20

// spring is the body of a request that takes over its connection, so that the
// kernel can carry it into the file.
type spring struct {
	conn     net.Conn
	buffered *bufio.Reader
	left     int64
}

var _ files.Spring = (*spring)(nil)

// newSpring returns the body of r, and what answers it, when the body is large, its
// length known and nobody has to look at it; otherwise nil. The caller closes it.
func newSpring(w http.ResponseWriter, r *http.Request, o files.WriteOptions) (*spring, *lastWord) {
	if r.ContentLength < pourFrom || o.SHA256 != nil || r.ProtoMajor != 1 || r.Header.Get("Expect") != "" {
		return nil, nil
	}
	c, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil
	}
	_ = c.SetDeadline(time.Time{})
	s := &spring{conn: c, buffered: buffered.Reader, left: r.ContentLength}
	return s, &lastWord{conn: c, header: http.Header{}}
}

// Read implements io.Reader.
func (s *spring) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n, err := s.buffered.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	if err == io.EOF && s.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != io.EOF {
		err = senderError(err)
	}
	return n, err
}

// PourInto implements files.Spring.
func (s *spring) PourInto(f *os.File) error {
	first := min(int64(s.buffered.Buffered()), s.left)
	if _, err := io.CopyN(f, s, first); err != nil {
		return err
	}
	err := pourAll(s.conn, &s.left, func(conn uintptr) (int64, error) { return pour(conn, f.Fd(), s.left) })
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = senderError(err)
	}
	return err
}

// pourOut answers with a whole large file, which the kernel carries into the
// connection. It reports whether it did; if not, nothing was sent.
func pourOut(w http.ResponseWriter, r *http.Request, file *os.File, info files.Info) bool {
	if info.Size < pourFrom || r.ProtoMajor != 1 || r.Method != http.MethodGet || r.Header.Get("Range") != "" {
		return false
	}
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Time{})
	h := w.Header()
	h.Set("Last-Modified", info.ModifiedAt.UTC().Format(http.TimeFormat))
	h.Set("Content-Length", strconv.FormatInt(info.Size, 10))
	h.Set("Connection", "close")
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 200 OK\r\n")
	_ = h.Write(&head)
	head.WriteString("\r\n")
	if _, err := head.WriteTo(c); err == nil {
		// Where the file turns out to be shorter, the end of the connection says so.
		_ = pourFile(c, file, info.Size)
	}
	return true
}

func pourFile(to net.Conn, file *os.File, size int64) error {
	err := pourAll(to, &size, func(conn uintptr) (int64, error) { return pour(file.Fd(), conn, size) })
	if errors.Is(err, errors.ErrUnsupported) {
		_, err = io.CopyN(to, file, size)
	}
	return err
}

// pourAll repeats some, which pours out of or into a connection, until nothing is
// left. It returns errors.ErrUnsupported where that cannot be done.
func pourAll(c net.Conn, left *int64, some func(conn uintptr) (int64, error)) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return errors.ErrUnsupported
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(conn uintptr) {
		for *left > 0 && failed == nil {
			var n int64
			if n, failed = some(conn); failed == nil && n == 0 {
				failed = io.ErrUnexpectedEOF
			}
			*left -= n
		}
	})
	return errors.Join(err, failed)
}

// pour has the kernel carry bytes. It returns errors.ErrUnsupported where the
// kernel cannot.
func pour(from, to uintptr, limit int64) (int64, error) {
	for {
		n, _, errno := unix.Syscall6(unix.SYS_PRCTL, abi.PrctlSplice, from, to, uintptr(limit), 0, 0)
		switch errno {
		case 0:
			return int64(n), nil
		case unix.EINTR:
		case unix.EINVAL, unix.ENOSYS:
			return 0, errors.ErrUnsupported
		case unix.ECONNRESET, unix.ETIMEDOUT:
			return 0, senderError(errno)
		default:
			return 0, errno
		}
	}
}

// lastWord is the answer on a connection that was taken over, which it ends.
type lastWord struct {
	conn   net.Conn
	header http.Header
	status int
	body   []byte
}

func (l *lastWord) Header() http.Header { return l.header }

func (l *lastWord) WriteHeader(status int) {
	if l.status == 0 {
		l.status = status
	}
}

func (l *lastWord) Write(p []byte) (int, error) {
	l.WriteHeader(http.StatusOK)
	l.body = append(l.body, p...)
	return len(p), nil
}

// lastWordTime bounds how long a sender may go on after the answer.
const lastWordTime = 10 * time.Second

// close sends the answer. Who is still sending gets to read it: what is left of the
// body is dropped first.
func (l *lastWord) close(s *spring) {
	defer l.conn.Close()
	_ = l.conn.SetDeadline(time.Now().Add(lastWordTime))
	res := http.Response{
		StatusCode: l.status, ProtoMajor: 1, ProtoMinor: 1, Header: l.header, Close: true,
		ContentLength: int64(len(l.body)), Body: io.NopCloser(bytes.NewReader(l.body)),
	}
	if err := res.Write(l.conn); err == nil && s.left > 0 {
		_, _ = io.Copy(io.Discard, s)
	}
}
