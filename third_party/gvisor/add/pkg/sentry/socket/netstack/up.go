package netstack

import (
	"net"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/inet"
	"gvisor.dev/gvisor/pkg/syserr"
	"gvisor.dev/gvisor/pkg/tcpip"
)

// setUp sets an interface up or down. The loopback interface gets its addresses when it is set
// up, as by Linux's inetdev_event() and init_loopback().
func (s *Stack) setUp(idx int32, up bool) *syserr.Error {
	id := tcpip.NICID(idx)
	info, ok := s.Stack.SingleNICInfo(id)
	if !ok {
		return syserr.ErrNoDevice
	}
	if !up {
		return syserr.TranslateNetstackError(s.Stack.DisableNIC(id))
	}
	if info.Flags.Loopback {
		for _, a := range []inet.InterfaceAddr{
			{Family: linux.AF_INET, PrefixLen: 8, Addr: net.IPv4(127, 0, 0, 1).To4()},
			{Family: linux.AF_INET6, PrefixLen: 128, Addr: net.IPv6loopback},
		} {
			if err := s.AddInterfaceAddr(idx, a); err != nil && !linuxerr.Equals(linuxerr.EEXIST, err) {
				return syserr.FromError(err)
			}
		}
	}
	return syserr.TranslateNetstackError(s.Stack.EnableNIC(id))
}
