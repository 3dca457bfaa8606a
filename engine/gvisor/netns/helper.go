// Package netns makes network namespaces with a tap device in them, and opens
// their taps, in a helper process of its own. Only engine/gvisor uses it; the
// helper's side is run by cmd/sentry.
//
// Entering a namespace is a matter of one OS thread, and a Go program cannot
// keep the threads that are born meanwhile out of it. So the server never does
// it: the helper, which dials nobody, does.
package netns

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
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

// Config is what a new tap looks like.
type Config struct {
	Guest      net.IPNet        `json:"guest"`
	GuestMAC   net.HardwareAddr `json:"guest_mac"`
	Gateway    net.IP           `json:"gateway"`
	GatewayMAC net.HardwareAddr `json:"gateway_mac"`
	MTU        int              `json:"mtu"`
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

// onOwnThread runs f on an OS thread that ends afterwards, whatever namespace
// f left it in.
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

// create returns a new namespace and the tap in it, configured.
func create(c Config) (_ []int, err error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	// The stack inside knows IPv4 alone, so the kernel must not speak IPv6 on
	// the cable. A kernel without IPv6 has no such file.
	if err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	tap, err := openTap(true)
	if err != nil {
		return nil, err
	}
	ns, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = configure(c)
	}
	if err != nil {
		unix.Close(tap)
		unix.Close(ns)
		return nil, err
	}
	return []int{ns, tap}, nil
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
	var ifr struct {
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(ifr.name[:], TapName)
	ifr.flags = unix.IFF_TAP | unix.IFF_NO_PI
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETIFF, uintptr(unsafe.Pointer(&ifr)))
	if e == 0 && persist {
		_, _, e = unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETPERSIST, 1)
	}
	if e != 0 {
		unix.Close(fd)
		return -1, fmt.Errorf("open tap %s: %w", TapName, e)
	}
	return fd, nil
}

func configure(c Config) error {
	h, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	tap, err := h.LinkByName(TapName)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return h.LinkSetUp(lo) },
		func() error { return h.LinkSetHardwareAddr(tap, c.GuestMAC) },
		func() error { return h.LinkSetMTU(tap, c.MTU) },
		func() error { return h.AddrAdd(tap, &netlink.Addr{IPNet: &c.Guest}) },
		func() error { return h.LinkSetUp(tap) },
		func() error {
			return h.RouteAdd(&netlink.Route{LinkIndex: tap.Attrs().Index, Gw: c.Gateway})
		},
		func() error {
			return h.NeighAdd(&netlink.Neigh{LinkIndex: tap.Attrs().Index, State: netlink.NUD_PERMANENT, IP: c.Gateway, HardwareAddr: c.GatewayMAC})
		},
	} {
		if err := step(); err != nil {
			return fmt.Errorf("configure tap: %w", err)
		}
	}
	return nil
}
