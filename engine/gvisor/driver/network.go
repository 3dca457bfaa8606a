package driver

import (
	"fmt"
	"net"
	"os"

	"gvisor.dev/gvisor/pkg/urpc"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/gvisor/netns"
)

// setNetwork tells a sentry everything about the network device, which the library's own client
// would read from the host.
func setNetwork(conn *urpc.Client, packets *os.File, restore bool) error {
	args, err := network(packets)
	if err != nil {
		return err
	}
	args.IsRestore = restore
	if err := conn.Call(callNetwork, args, nil); err != nil {
		return fmt.Errorf("set up the network: %w", err)
	}
	return nil
}

// network describes the sandbox's interfaces to its kernel.
func network(packets *os.File) (*networkArgs, error) {
	conf, err := anyConfig()
	if err != nil {
		return nil, fmt.Errorf("configure the sentry: %w", err)
	}
	prefix := bothy.SandboxPrefix
	local := net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
	anywhere := net.IPNet{IP: net.IPv4zero.To4(), Mask: net.IPMask(net.IPv4zero.To4())}
	gateway := net.IP(bothy.GatewayAddr.AsSlice())
	return &networkArgs{
		FilePayload:   urpc.FilePayload{Files: []*os.File{packets}},
		LoopbackLinks: []loopbackLink{loopback},
		FDBasedLinks: []packetLink{{
			Name:                 netns.TapName,
			MTU:                  netns.MTU,
			GSOMaxSize:           netns.GSOMaxSize,
			Addresses:            []address{{Address: bothy.GuestAddr.AsSlice(), PrefixLen: prefix.Bits()}},
			Routes:               []route{{Destination: anywhere, Gateway: gateway}, {Destination: local}},
			LinkAddress:          bothy.GuestMAC[:],
			Neighbors:            []neighbour{{IP: gateway, HardwareAddr: bothy.GatewayMAC[:]}},
			TXChecksumOffload:    conf.TXChecksumOffload,
			RXChecksumOffload:    conf.RXChecksumOffload,
			QDisc:                conf.QDisc,
			NumChannels:          1,
			ProcessorsPerChannel: conf.NetworkProcessorsPerChannel,
			GVisorGRO:            conf.GVisorGRO,
		}},
		AllowConnectedOnSave: conf.AllowConnectedOnSave,
	}, nil
}
