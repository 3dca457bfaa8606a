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

// spliceFrom is the smallest body that is spliced, in bytes.
const spliceFrom = 1 << 20

// spliceBody is the body of a request whose connection was hijacked, so that the kernel can
// copy it into the file.
type spliceBody struct {
	conn     net.Conn
	buffered *bufio.Reader
	left     int64
}

var _ files.Splicer = (*spliceBody)(nil)

// newSpliceBody hijacks the connection of r and returns its body and the response to write. It
// returns nil if the body is small, of unknown length, or has to be hashed. The caller closes
// the response.
func newSpliceBody(w http.ResponseWriter, r *http.Request, o files.WriteOptions) (*spliceBody, *hijackedResponse) {
	if r.ContentLength < spliceFrom || o.SHA256 != nil || r.ProtoMajor != 1 || r.Header.Get("Expect") != "" {
		return nil, nil
	}
	c, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil
	}
	_ = c.SetDeadline(time.Time{})
	s := &spliceBody{conn: c, buffered: buffered.Reader, left: r.ContentLength}
	return s, &hijackedResponse{conn: c, header: http.Header{}}
}

// Read implements io.Reader.
func (s *spliceBody) Read(p []byte) (int, error) {
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

// SpliceInto implements files.Splicer.
func (s *spliceBody) SpliceInto(f *os.File) error {
	first := min(int64(s.buffered.Buffered()), s.left)
	if _, err := io.CopyN(f, s, first); err != nil {
		return err
	}
	err := spliceAll(s.conn, &s.left, func(conn uintptr) (int64, error) { return splice(conn, f.Fd(), s.left) })
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = senderError(err)
	}
	return err
}

// spliceOut answers with a whole large file, which the kernel copies into the connection. It
// reports whether it did; if not, nothing was sent.
func spliceOut(w http.ResponseWriter, r *http.Request, file *os.File, info files.Info) bool {
	if info.Size < spliceFrom || r.ProtoMajor != 1 || r.Method != http.MethodGet || r.Header.Get("Range") != "" {
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
		// If the file turns out to be shorter, the early end of the connection shows it.
		_ = spliceFile(c, file, info.Size)
	}
	return true
}

func spliceFile(to net.Conn, file *os.File, size int64) error {
	err := spliceAll(to, &size, func(conn uintptr) (int64, error) { return splice(file.Fd(), conn, size) })
	if errors.Is(err, errors.ErrUnsupported) {
		_, err = io.CopyN(to, file, size)
	}
	return err
}

// spliceAll calls some, which splices from or to a connection, until nothing is left. It
// returns errors.ErrUnsupported for a connection that is not TCP.
func spliceAll(c net.Conn, left *int64, some func(conn uintptr) (int64, error)) error {
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

// splice has the kernel copy up to limit bytes. It returns errors.ErrUnsupported if the kernel
// cannot.
func splice(from, to uintptr, limit int64) (int64, error) {
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

// hijackedResponse writes the response on a hijacked connection, and closes it.
type hijackedResponse struct {
	conn   net.Conn
	header http.Header
	status int
	body   []byte
}

func (l *hijackedResponse) Header() http.Header { return l.header }

func (l *hijackedResponse) WriteHeader(status int) {
	if l.status == 0 {
		l.status = status
	}
}

func (l *hijackedResponse) Write(p []byte) (int, error) {
	l.WriteHeader(http.StatusOK)
	l.body = append(l.body, p...)
	return len(p), nil
}

// drainTime is how long a client may keep sending after the response.
const drainTime = 10 * time.Second

// close sends the response, then drains the rest of the body, so that a client that is still
// sending reads the response instead of a reset.
func (l *hijackedResponse) close(s *spliceBody) {
	defer l.conn.Close()
	_ = l.conn.SetDeadline(time.Now().Add(drainTime))
	res := http.Response{
		StatusCode: l.status, ProtoMajor: 1, ProtoMinor: 1, Header: l.header, Close: true,
		ContentLength: int64(len(l.body)), Body: io.NopCloser(bytes.NewReader(l.body)),
	}
	if err := res.Write(l.conn); err == nil && s.left > 0 {
		_, _ = io.Copy(io.Discard, s)
	}
}
