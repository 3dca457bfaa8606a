package netns

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Client asks a helper process, which it starts when first needed, and again if it dies or does
// not answer. Its methods may be called from many goroutines at once.
type Client struct {
	// Timeout limits one answer of the helper; zero means 10 seconds. An answer takes some
	// milliseconds, and more on a busy host.
	Timeout time.Duration

	command []string

	mu   sync.Mutex
	cmd  *exec.Cmd
	sock *net.UnixConn
}

const defaultTimeout = 10 * time.Second

// Arg is the first argument that makes a sentry's program the helper.
const Arg = "netns-helper"

// NewClient returns a client whose helper is run by the command. The helper
// finds its socket at descriptor 3.
func NewClient(command ...string) *Client { return &Client{command: command} }

// A NetDevice is the tap of a new namespace. It lives as long as a process lives in the
// namespace or one of the files is open.
type NetDevice struct {
	Namespace *os.File
	Tap       *os.File // the host's end
	Socket    *os.File // the sentry's end, a packet socket with virtio-net headers
}

// Close closes its files.
func (c *NetDevice) Close() error {
	return errors.Join(c.Namespace.Close(), c.Tap.Close(), c.Socket.Close())
}

// New makes a namespace with a tap.
func (c *Client) New() (*NetDevice, error) {
	fds, err := c.ask(request{}, 3)
	if err != nil {
		return nil, err
	}
	return &NetDevice{
		Namespace: os.NewFile(uintptr(fds[0]), "netns"), Tap: os.NewFile(uintptr(fds[1]), "tap"),
		Socket: os.NewFile(uintptr(fds[2]), "packets"),
	}, nil
}

// Open opens the tap in the namespace of a live process.
func (c *Client) Open(pid int) (*os.File, error) {
	fds, err := c.ask(request{PID: pid}, 1)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "tap"), nil
}

// Close ends the helper.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stop()
}

// stop kills the helper: a hanging one would not notice that its socket was closed.
func (c *Client) stop() error {
	if c.cmd == nil {
		return nil
	}
	err := c.sock.Close()
	_ = c.cmd.Process.Kill() // it may have ended already
	_ = c.cmd.Wait()         // it was killed
	c.cmd, c.sock = nil, nil
	return err
}

func (c *Client) start() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "netns"), os.NewFile(uintptr(pair[1]), "netns-helper")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return err
	}
	cmd := exec.Command(c.command[0], c.command[1:]...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		conn.Close()
		return fmt.Errorf("start the network helper: %w", err)
	}
	c.cmd, c.sock = cmd, conn.(*net.UnixConn)
	return nil
}

// ask sends one request. A helper that is dead, or does not answer in time, is replaced once.
func (c *Client) ask(req request, want int) ([]int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for attempt := 0; ; attempt++ {
		if c.cmd == nil {
			if err := c.start(); err != nil {
				return nil, err
			}
		}
		fds, err := c.roundTrip(req, want)
		var refused *refusedError
		if err == nil || errors.As(err, &refused) {
			return fds, err
		}
		c.stop()
		if attempt > 0 {
			return nil, fmt.Errorf("the network helper does not answer: %w", err)
		}
	}
}

// refusedError is an error that the helper itself reported.
type refusedError struct{ msg string }

func (e *refusedError) Error() string { return e.msg }

// mostFiles is how many descriptors an answer may hold. The kernel drops those that do not fit.
const mostFiles = 16

func (c *Client) roundTrip(req request, want int) (_ []int, err error) {
	if err := c.sock.SetDeadline(time.Now().Add(cmp.Or(c.Timeout, defaultTimeout))); err != nil {
		return nil, err
	}
	b, _ := json.Marshal(req)
	if _, err := c.sock.Write(b); err != nil {
		return nil, err
	}
	buf, oob := make([]byte, 1024), make([]byte, unix.CmsgSpace(4*mostFiles))
	n, oobn, _, _, err := c.sock.ReadMsgUnix(buf, oob)
	if err != nil {
		return nil, err
	}
	fds, err := rights(oob[:oobn])
	defer func() {
		if err != nil {
			for _, fd := range fds {
				unix.Close(fd)
			}
		}
	}()
	if err != nil {
		return nil, err
	}
	var r reply
	if err := json.Unmarshal(buf[:n], &r); err != nil {
		return nil, err
	}
	if r.Error != "" {
		return nil, &refusedError{r.Error}
	}
	if len(fds) != want {
		return nil, fmt.Errorf("got %d descriptors instead of %d", len(fds), want)
	}
	return fds, nil
}

// rights returns the descriptors in control messages, even on error.
func rights(oob []byte) (fds []int, err error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	for _, m := range msgs {
		these, merr := unix.ParseUnixRights(&m)
		fds, err = append(fds, these...), errors.Join(err, merr)
	}
	return fds, err
}
