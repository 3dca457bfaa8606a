package driver

import (
	"fmt"
	"net"

	"gvisor.dev/gvisor/pkg/urpc"
	"gvisor.dev/gvisor/runsc/config"
)

// The calls of a sentry's control socket and their arguments, as gVisor's packages boot and control name them, with the
// fields that are set here. Those packages bring all of the sentry: a server that imported them would be a
// fifth larger. The test compares the two.
const (
	callStart      = "containerManager.StartRoot"
	callRestore    = "containerManager.Restore"
	callCheckpoint = "containerManager.Checkpoint"
	callPause      = "containerManager.Pause"
	callResume     = "containerManager.Resume"
	callNetwork    = "containerManager.SetNetworkArgs"
	callTar        = "Fs.TarRootfsUpperLayer"
)

// cpuFeatures is the annotation with the processor features that programs see.
const cpuFeatures = "dev.gvisor.internal.cpufeatures"

type restoreArgs struct {
	urpc.FilePayload
	HavePagesFile bool
	Background    bool
}

type checkpointArgs struct {
	urpc.FilePayload
	Metadata      map[string]string `json:"metadata"`
	SkipZeroPages bool              `json:"app_mf_exclude_committed_zero_pages"`
	HavePagesFile bool              `json:"have_pages_file"`
	Resume        bool
}

type tarArgs struct {
	urpc.FilePayload
	ContainerID string
}

type networkArgs struct {
	urpc.FilePayload
	LoopbackLinks        []loopbackLink
	FDBasedLinks         []packetLink
	AllowConnectedOnSave bool
	IsRestore            bool
}

type loopbackLink struct {
	Name      string
	Addresses []address
	Routes    []route
}

type packetLink struct {
	Name                 string
	MTU                  int
	Addresses            []address
	Routes               []route
	GSOMaxSize           uint32
	GVisorGRO            bool
	TXChecksumOffload    bool
	RXChecksumOffload    bool
	LinkAddress          net.HardwareAddr
	QDisc                config.QueueingDiscipline
	Neighbors            []neighbour
	NumChannels          int
	ProcessorsPerChannel int
}

type address struct {
	Address   net.IP
	PrefixLen int
}

type route struct {
	Destination net.IPNet
	Gateway     net.IP
}

type neighbour struct {
	IP           net.IP
	HardwareAddr net.HardwareAddr
}

// loopback is the interface lo.
var loopback = loopbackLink{
	Name:      "lo",
	Addresses: []address{{net.IPv4(127, 0, 0, 1).To4(), 8}, {net.IPv6loopback, 128}},
	Routes: []route{
		{Destination: net.IPNet{IP: net.IPv4(127, 0, 0, 0), Mask: net.CIDRMask(8, 32)}},
		{Destination: net.IPNet{IP: net.IPv6loopback, Mask: net.CIDRMask(128, 128)}},
	},
}

// layers describes the root file system, which has a writable layer of a size, and the guest's, which has none.
func layers(size string) string { return fmt.Sprintf("erofs:anon:size=%s,erofs:none", size) }
