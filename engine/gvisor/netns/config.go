package netns

import (
	"net"

	"github.com/bothy-dev/bothy"
)

// MTU of the cable in bytes. Large, because every packet costs two trips
// through a user-space stack and the cable loses none.
const MTU = 65000

// DefaultConfig is every sandbox's side of the cable.
func DefaultConfig() Config {
	return Config{
		Guest:      net.IPNet{IP: bothy.GuestAddr.AsSlice(), Mask: net.CIDRMask(bothy.CablePrefix.Bits(), 32)},
		GuestMAC:   bothy.GuestMAC[:],
		Gateway:    bothy.GatewayAddr.AsSlice(),
		GatewayMAC: bothy.GatewayMAC[:],
		MTU:        MTU,
	}
}
