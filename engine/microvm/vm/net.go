package vm

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
)

const netDeviceName = "eth0"

// network sets up the two interfaces that a sandbox has.
func network() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_ = write("/proc/sys/net/ipv6/conf/"+netDeviceName+"/disable_ipv6", "1")
	// Any user may ping: the network device has a single peer.
	_ = write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647")
	if err := up(fd, "lo"); err != nil {
		return err
	}
	set := func(what uint, a [4]byte) error {
		r, err := unix.NewIfreq(netDeviceName)
		if err != nil {
			return err
		}
		if err := r.SetInet4Addr(a[:]); err != nil {
			return err
		}
		return unix.IoctlIfreq(fd, what, r)
	}
	bits := bothy.SandboxPrefix.Bits()
	mask := ^uint32(0) << (32 - bits)
	if err := errors.Join(
		set(unix.SIOCSIFADDR, bothy.GuestAddr.As4()),
		set(unix.SIOCSIFNETMASK, [4]byte{byte(mask >> 24), byte(mask >> 16), byte(mask >> 8), byte(mask)}),
	); err != nil {
		return fmt.Errorf("set the address: %w", err)
	}
	if err := up(fd, netDeviceName); err != nil {
		return err
	}
	if err := pinGatewayAddress(fd); err != nil {
		return err
	}
	return defaultRoute(fd)
}

func up(fd int, name string) error {
	r, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, r); err != nil {
		return fmt.Errorf("the machine has no interface %s: %w", name, err)
	}
	r.SetUint16(r.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}

// sockaddr is struct sockaddr.
type sockaddr struct {
	family uint16
	data   [14]byte
}

func inet(a [4]byte) sockaddr {
	s := sockaddr{family: unix.AF_INET}
	copy(s.data[2:], a[:])
	return s
}

// The flags of an ARP entry that stays.
const arpComplete, arpPermanent = 2, 4

// pinGatewayAddress makes the gateway's link address permanent.
func pinGatewayAddress(fd int) error {
	r := struct {
		addr, link sockaddr
		flags      int32
		mask       sockaddr
		dev        [16]byte
	}{addr: inet(bothy.GatewayAddr.As4()), link: sockaddr{family: unix.ARPHRD_ETHER}, flags: arpComplete | arpPermanent}
	copy(r.link.data[:], bothy.GatewayMAC[:])
	copy(r.dev[:], netDeviceName)
	return ioctl(fd, unix.SIOCSARP, unsafe.Pointer(&r))
}

// defaultRoute sends everything to the gateway.
func defaultRoute(fd int) error {
	r := struct { // struct rtentry
		_                  uint64
		dst, gateway, mask sockaddr
		flags              uint16
		_                  [62]byte
	}{dst: inet([4]byte{}), gateway: inet(bothy.GatewayAddr.As4()), mask: inet([4]byte{}), flags: unix.RTF_UP | unix.RTF_GATEWAY}
	return ioctl(fd, unix.SIOCADDRT, unsafe.Pointer(&r))
}

func ioctl(fd int, what uintptr, arg unsafe.Pointer) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), what, uintptr(arg)); e != 0 {
		return os.NewSyscallError("ioctl", e)
	}
	return nil
}
