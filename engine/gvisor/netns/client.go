package netns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"
)

// Client asks a helper process, which it starts when first needed and again
// should it die. Its methods may be called from many goroutines at once.
type Client struct {
	command []string

	mu   sync.Mutex
	cmd  *exec.Cmd
	sock int
}

// NewClient returns a client whose helper is run by the command. The helper
// finds its socket at descriptor 3.
func NewClient(command ...string) *Client { return &Client{command: command, sock: -1} }

// A Cable is a new namespace's. Its tap lives as long as a process lives in the namespace
// or one of the files is open.
type Cable struct {
	Namespace *os.File
	Tap       *os.File // the host's end
	Socket    *os.File // the sentry's end, a packet socket with virtio-net headers
}

// Close closes its files.
func (c *Cable) Close() error {
	return errors.Join(c.Namespace.Close(), c.Tap.Close(), c.Socket.Close())
}

// New makes a namespace with a tap.
func (c *Client) New() (*Cable, error) {
	fds, err := c.ask(request{}, 3)
	if err != nil {
		return nil, err
	}
	return &Cable{
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

func (c *Client) stop() error {
	if c.cmd == nil {
		return nil
	}
	unix.Close(c.sock)
	c.sock = -1
	err := c.cmd.Wait()
	c.cmd = nil
	return err
}

func (c *Client) start() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	theirs := os.NewFile(uintptr(pair[1]), "netns-helper")
	defer theirs.Close()
	cmd := exec.Command(c.command[0], c.command[1:]...)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		unix.Close(pair[0])
		return fmt.Errorf("start the network helper: %w", err)
	}
	c.cmd, c.sock = cmd, pair[0]
	return nil
}

// ask sends one request; a dead helper is replaced once.
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
			return nil, fmt.Errorf("the network helper died: %w", err)
		}
	}
}

// refusedError is the helper's own word that something failed.
type refusedError struct{ msg string }

func (e *refusedError) Error() string { return e.msg }

func (c *Client) roundTrip(req request, want int) ([]int, error) {
	b, _ := json.Marshal(req)
	if err := unix.Sendmsg(c.sock, b, nil, nil, unix.MSG_NOSIGNAL); err != nil {
		return nil, err
	}
	buf, oob := make([]byte, 1024), make([]byte, unix.CmsgSpace(4*3))
	n, oobn, _, _, err := unix.Recvmsg(c.sock, buf, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	var r reply
	if err := json.Unmarshal(buf[:n], &r); err != nil {
		return nil, err
	}
	if r.Error != "" {
		return nil, &refusedError{r.Error}
	}
	fds, err := rights(oob[:oobn])
	if err == nil && len(fds) != want {
		err = fmt.Errorf("got %d descriptors instead of %d", len(fds), want)
	}
	return fds, err
}

func rights(oob []byte) ([]int, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) != 1 {
		return nil, fmt.Errorf("no descriptors in the helper's answer: %v", err)
	}
	return unix.ParseUnixRights(&msgs[0])
}
