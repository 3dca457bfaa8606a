// Package netns creates network namespaces with a tap device in them, and opens
// their taps, in a separate helper process. Only engine/gvisor uses it; the
// helper's side is run by cmd/sentry.
//
// A namespace is entered by one OS thread, and a Go program cannot keep new threads out of it.
// So the server never does this: it uses the helper, which makes no connections.
package netns

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy/engine/sysfile"
)

// TapName is the tap's name in every namespace.
const TapName = "eth0"

type request struct {
	// PID names the process whose namespace to enter; 0 makes a new one.
	PID int `json:"pid"`
}

type reply struct {
	Error string `json:"error,omitempty"`
}

// Serve answers requests on the sequenced-packet socket fd until the other end
// is closed. It is the whole life of the helper process.
func Serve(fd int, c Config) error {
	buf := make([]byte, 256)
	for {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return err
		}
		var req request
		if err := json.Unmarshal(buf[:n], &req); err != nil {
			return err
		}
		if err := answer(fd, req, c); err != nil {
			return err
		}
	}
}

func answer(fd int, req request, c Config) error {
	fds, err := onOwnThread(func() ([]int, error) {
		if req.PID == 0 {
			return create(c)
		}
		return open(req.PID)
	})
	var r reply
	var rights []byte
	if err != nil {
		r.Error = err.Error()
	} else {
		rights = unix.UnixRights(fds...)
	}
	b, _ := json.Marshal(r)
	err = unix.Sendmsg(fd, b, rights, nil, 0)
	for _, f := range fds {
		unix.Close(f)
	}
	return err
}

// onOwnThread runs f on an OS thread that ends afterwards, whatever namespace f left it in.
func onOwnThread(f func() ([]int, error)) (fds []int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		fds, err = f()
	}()
	<-done
	return fds, err
}

// create returns a new namespace, the tap in it, and a packet socket of its network device's
// inner end.
func create(c Config) (_ []int, err error) {
	var fds []int
	defer func() {
		if err != nil {
			for _, fd := range fds {
				unix.Close(fd)
			}
		}
	}()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	// The stack inside knows only IPv4, so the kernel must not speak IPv6 on the network device.
	// A kernel without IPv6 has no such file.
	if err := sysfile.Write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, open := range []func() (int, error){
		func() (int, error) { return unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0) },
		func() (int, error) { return openTap(true) },
		func() (int, error) { return openSocket(c) },
	} {
		fd, err := open()
		if err != nil {
			return nil, err
		}
		fds = append(fds, fd)
	}
	return fds, nil
}

// open returns the tap in a live process's namespace.
func open(pid int) ([]int, error) {
	ns, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(ns)
	if err := unix.Setns(ns, unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("enter network namespace of process %d: %w", pid, err)
	}
	tap, err := openTap(false)
	if err != nil {
		return nil, err
	}
	return []int{tap}, nil
}

func openTap(persist bool) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	r := tapRequest()
	binary.NativeEndian.PutUint16(r.data[:], unix.IFF_TAP|unix.IFF_NO_PI)
	if err = r.do(fd, unix.TUNSETIFF); err == nil && persist {
		err = unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("open tap %s: %w", TapName, err)
	}
	return fd, nil
}

// interfaceRequest is struct ifreq.
type interfaceRequest struct {
	name [unix.IFNAMSIZ]byte
	data [24]byte
}

func tapRequest() (r interfaceRequest) {
	copy(r.name[:], TapName)
	return r
}

func (r *interfaceRequest) do(fd int, what uint) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(what), uintptr(unsafe.Pointer(r))); e != 0 {
		return e
	}
	return nil
}

// socketBuffer is the room in bytes for packets on their way through the socket.
const socketBuffer = 4 << 20

// openSocket sets the tap up and returns a socket for a sentry to send and receive frames. The
// tap needs no address: the sentry has it.
func openSocket(c Config) (fd int, err error) {
	// Without a protocol it receives nothing before it is bound.
	if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return -1, fmt.Errorf("make a packet socket: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
			fd, err = -1, fmt.Errorf("configure tap: %w", err)
		}
	}()
	r := tapRequest()
	binary.NativeEndian.PutUint16(r.data[:], unix.ARPHRD_ETHER)
	copy(r.data[2:], c.GuestMAC[:])
	if err := r.do(fd, unix.SIOCSIFHWADDR); err != nil {
		return fd, err
	}
	r = tapRequest()
	binary.NativeEndian.PutUint32(r.data[:], uint32(c.MTU))
	if err := r.do(fd, unix.SIOCSIFMTU); err != nil {
		return fd, err
	}
	r = tapRequest()
	binary.NativeEndian.PutUint16(r.data[:], unix.IFF_UP|unix.IFF_BROADCAST|unix.IFF_MULTICAST)
	if err := r.do(fd, unix.SIOCSIFFLAGS); err != nil {
		return fd, err
	}
	r = tapRequest()
	if err := r.do(fd, unix.SIOCGIFINDEX); err != nil {
		return fd, err
	}
	index := int(binary.NativeEndian.Uint32(r.data[:]))
	const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network byte order
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}); err != nil {
		return fd, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		return fd, err
	}
	for _, o := range []int{unix.SO_RCVBUFFORCE, unix.SO_SNDBUFFORCE} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, socketBuffer); err != nil {
			return fd, err
		}
	}
	return fd, nil
}
