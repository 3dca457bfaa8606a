package gvisor

import (
	"fmt"
	"net"
	"os"

	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/boot"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/gvisor/netns"
)

// boot starts process 1, as Sandbox.StartRoot would, which asks the host for all that is
// known of the cable.
func (v *vessel) boot() error {
	conn, err := connect(v.sb)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.Call(boot.ContMgrSetNetworkArgs, v.network(), nil); err != nil {
		return fmt.Errorf("set up the network: %w", err)
	}
	return conn.Call(boot.ContMgrRootContainerStart, &v.sb.ID, nil)
}

// network describes the sandbox's interfaces to its kernel.
func (v *vessel) network() *boot.CreateLinksAndRoutesArgs {
	prefix := bothy.CablePrefix
	local := net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), prefix.Addr().BitLen())}
	anywhere := net.IPNet{IP: net.IPv4zero.To4(), Mask: net.IPMask(net.IPv4zero.To4())}
	gateway := net.IP(bothy.GatewayAddr.AsSlice())
	return &boot.CreateLinksAndRoutesArgs{
		FilePayload:   urpc.FilePayload{Files: []*os.File{v.packets}},
		LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink},
		FDBasedLinks: []boot.FDBasedLink{{
			Name:                 netns.TapName,
			MTU:                  netns.MTU,
			GSOMaxSize:           netns.GSOMaxSize,
			Addresses:            []boot.IPWithPrefix{{Address: bothy.GuestAddr.AsSlice(), PrefixLen: prefix.Bits()}},
			Routes:               []boot.Route{{Destination: anywhere, Gateway: gateway}, {Destination: local}},
			LinkAddress:          bothy.GuestMAC[:],
			Neighbors:            []boot.Neighbor{{IP: gateway, HardwareAddr: bothy.GatewayMAC[:]}},
			TXChecksumOffload:    v.conf.TXChecksumOffload,
			RXChecksumOffload:    v.conf.RXChecksumOffload,
			QDisc:                v.conf.QDisc,
			NumChannels:          1,
			ProcessorsPerChannel: v.conf.NetworkProcessorsPerChannel,
			GVisorGRO:            v.conf.GVisorGRO,
		}},
		AllowConnectedOnSave: v.conf.AllowConnectedOnSave,
	}
}
