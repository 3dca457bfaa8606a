package microvm

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"bufio"

	"golang.org/x/sys/unix"
)

// netDeviceMTU in bytes. Large, because every packet costs two trips through a user-space
// stack and the network device loses none.
const netDeviceMTU = 65000

// netDeviceBuffer is how much may be on its way to the machine, in bytes.
const netDeviceBuffer = 4 << 20

// netDevice is the socket of QEMU's stream network: each frame follows its length, as four bytes
// in big-endian order.
type netDevice struct {
	conn *net.UnixConn
	raw  rawConn
	in   *bufio.Reader

	mu sync.Mutex
	// rest is the part of a frame that did not fit. It must be sent before any other frame, or
	// the stream could no longer be split into frames.
	rest     []byte
	flushing bool
}

type rawConn interface {
	Write(func(fd uintptr) bool) error
}

func openNetDevice(path string) (*netDevice, error) {
	conn, err := dialUnix(path)
	if err != nil {
		return nil, fmt.Errorf("open the network device: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		conn.Close()
		return nil, err
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, netDeviceBuffer)
	})
	return &netDevice{conn: conn, raw: raw, in: bufio.NewReaderSize(conn, 64<<10)}, nil
}

// awaitNetDevice returns when QEMU listens at the network device, or has ended. QEMU starts
// listening in a separate thread, and a frame that the machine sends before that crashes QEMU
// with a segmentation fault. QEMU closes a connection that sends nothing once it has accepted
// it.
func awaitNetDevice(ctx context.Context, path string) error {
	conn, err := dialUnix(path)
	if err != nil {
		return fmt.Errorf("wait for the network device: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	if err := conn.CloseWrite(); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("wait for the network device: %w", cmp.Or(err, errors.New("it sends before the machine runs")))
	}
	return nil
}

func (c *netDevice) ReadFrame(p []byte) (int, error) {
	var head [4]byte
	for {
		if _, err := io.ReadFull(c.in, head[:]); err != nil {
			return 0, closedError(err)
		}
		n := int(binary.BigEndian.Uint32(head[:]))
		if n > len(p) { // QEMU's own bound is above every frame's
			if _, err := io.CopyN(io.Discard, c.in, int64(n)); err != nil {
				return 0, closedError(err)
			}
			continue
		}
		_, err := io.ReadFull(c.in, p[:n])
		return n, closedError(err)
	}
}

func closedError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrClosed) || errors.Is(err, unix.ECONNRESET) {
		return net.ErrClosed
	}
	return err
}

func (c *netDevice) WriteFrame(pieces ...[]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flushing {
		return nil // there is no room: the frame is dropped
	}
	size := 0
	for _, p := range pieces {
		size += len(p)
	}
	out := make([][]byte, 1, len(pieces)+1)
	out[0] = binary.BigEndian.AppendUint32(nil, uint32(size))
	out = append(out, pieces...)
	sent, err := c.tryWrite(out)
	if err != nil || sent == 0 || sent == size+4 {
		return err
	}
	c.rest = nil
	for _, p := range out {
		skip := min(sent, len(p))
		sent -= skip
		c.rest = append(c.rest, p[skip:]...)
	}
	c.flushing = true
	go c.flush()
	return nil
}

// tryWrite writes as much as fits.
func (c *netDevice) tryWrite(pieces [][]byte) (n int, err error) {
	werr := c.raw.Write(func(fd uintptr) bool {
		for {
			n, err = unix.Writev(int(fd), pieces)
			if err != unix.EINTR {
				return true
			}
		}
	})
	switch {
	case werr != nil:
		return 0, closedError(werr)
	case err == unix.EAGAIN:
		return 0, nil
	case err == unix.EPIPE:
		return 0, net.ErrClosed
	}
	return max(n, 0), err
}

// flush waits until the rest of a frame has been sent.
func (c *netDevice) flush() {
	_, err := c.conn.Write(c.rest)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = nil
	c.flushing = err != nil
}

func (c *netDevice) MTU() int     { return netDeviceMTU }
func (c *netDevice) Close() error { return c.conn.Close() }
