package cluster

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// connected is both ends of a connection, of which the first is watched.
func connected(t *testing.T) (near net.Conn, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	watched := Listen(l)
	t.Cleanup(func() { watched.Close() })
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if near, err = watched.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); c.Close() })
	return near, c.(*net.TCPConn)
}

// deafen has a socket drop all that comes, without a word, as a network does that is cut.
func deafen(t *testing.T, c *net.TCPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	drop := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop[0]})
	})
	if err = errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
}

// A connection to a host that was cut off ends, also for those that only wait for an answer.
func TestAConnectionThatIsCutOffEnds(t *testing.T) {
	t.Parallel()
	near, far := connected(t)
	deafen(t, far)
	if _, err := near.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	if err := near.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := near.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it ends with %v", err)
	}
}

// One whose other end lives, and does not read, continues however long that takes.
func TestAConnectionThatNobodyReadsGoesOn(t *testing.T) {
	t.Parallel()
	near, far := connected(t)
	sent := make(chan error, 1)
	what := bytes.Repeat([]byte("much"), 16<<20/4)
	go func() {
		_, err := near.Write(what)
		sent <- err
	}()
	select {
	case err := <-sent:
		t.Fatalf("nobody reads, and all is sent: %v", err)
	case <-time.After(deafTime + 3*connLook):
	}
	got := make([]byte, len(what))
	if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, what) {
		t.Errorf("it was not sent whole: %v", err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}
