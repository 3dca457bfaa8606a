package bothy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// NetworkMode is the reach of a sandbox.
type NetworkMode string

// The network modes, from nothing to everything that is not forbidden.
const (
	NetworkOff        NetworkMode = "off"
	NetworkRestricted NetworkMode = "restricted"
	NetworkOpen       NetworkMode = "open"
)

// Network says which destinations a sandbox may reach. The zero value is off.
//
// In JSON it is a mode as a string, or an object. "restricted" as a string
// means all the presets; an object names its own.
type Network struct {
	Mode         NetworkMode    `json:"mode"`
	Presets      []string       `json:"presets,omitempty"`
	AllowDomains []string       `json:"allow_domains,omitempty"`
	AllowCIDRs   []netip.Prefix `json:"allow_cidrs,omitempty"`
	AllowPorts   []uint16       `json:"allow_ports,omitempty"`
	// DenyCIDRs are closed in mode open, except for what the fields above
	// allow.
	DenyCIDRs []netip.Prefix `json:"deny_cidrs,omitempty"`
}

// IsPlain reports whether the mode alone says everything.
func (n Network) IsPlain() bool {
	return len(n.Presets) == 0 && len(n.AllowDomains) == 0 && len(n.AllowCIDRs) == 0 && len(n.AllowPorts) == 0 && len(n.DenyCIDRs) == 0
}

// UnmarshalJSON reads a mode string or an object. Unknown keys are errors, so
// that a misspelt rule is not silently dropped.
func (n *Network) UnmarshalJSON(b []byte) error {
	var mode NetworkMode
	if err := json.Unmarshal(b, &mode); err == nil {
		*n = Network{Mode: mode}
		return n.checkMode()
	}
	type plain Network
	var p plain
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(&p)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field == "allow_ports" {
		return fmt.Errorf("network.allow_ports holds a %s: ports are numbers from 1 to 65535", wrong.Value)
	}
	if list, bad := notARange(b); err != nil && bad != "" {
		return fmt.Errorf("network.%s holds %q, which is not a range of addresses: write it like \"192.0.2.0/24\", or \"192.0.2.7/32\" for one address", list, bad)
	}
	if err != nil {
		return fmt.Errorf("network must be \"off\", \"restricted\", \"open\" or an object: %w", err)
	}
	*n = Network(p)
	if n.Mode == "" {
		n.Mode = NetworkRestricted
	}
	return n.checkMode()
}

// notARange returns the first CIDR of a network object that is none, with the list
// that holds it, or "".
func notARange(b []byte) (list, text string) {
	var only struct {
		Allow []string `json:"allow_cidrs"`
		Deny  []string `json:"deny_cidrs"`
	}
	_ = json.Unmarshal(b, &only)
	for name, l := range map[string][]string{"allow_cidrs": only.Allow, "deny_cidrs": only.Deny} {
		for _, c := range l {
			if _, err := netip.ParsePrefix(c); err != nil {
				return name, c
			}
		}
	}
	return "", ""
}

func (n Network) checkMode() error {
	switch n.Mode {
	case NetworkOff, NetworkRestricted, NetworkOpen:
		return nil
	}
	return fmt.Errorf("network mode %q is not one of off, restricted, open", n.Mode)
}

// MarshalJSON writes the shorter form that means the same.
func (n Network) MarshalJSON() ([]byte, error) {
	if n.Mode == "" {
		n.Mode = NetworkOff
	}
	if n.IsPlain() {
		return json.Marshal(n.Mode)
	}
	type plain Network
	return json.Marshal(plain(n))
}

// The fixed addresses of every sandbox's only network device.
var (
	// GatewayAddr is the host's end.
	GatewayAddr = netip.MustParseAddr("10.0.0.1")
	// GuestAddr is the sandbox's end.
	GuestAddr = netip.MustParseAddr("10.0.0.2")
	// SandboxPrefix is the network between them.
	SandboxPrefix = netip.MustParsePrefix("10.0.0.0/24")
	// GatewayMAC and GuestMAC are the link addresses of the two ends.
	GatewayMAC = [6]byte{0x02, 0, 0, 0, 0, 1}
	GuestMAC   = [6]byte{0x02, 0, 0, 0, 0, 2}
)

// GuestPort is where the guest agent listens, on GuestAddr only.
const GuestPort = 49983

// NetDevice is the host's end of a sandbox's only network device. It carries whole
// Ethernet frames.
//
// ReadFrame and WriteFrame may be called at the same time as each other and as
// Close; each of them from one goroutine or more. Close makes a waiting
// ReadFrame return net.ErrClosed.
type NetDevice interface {
	// ReadFrame reads one frame from the sandbox into p and returns its length.
	ReadFrame(p []byte) (int, error)
	// WriteFrame sends one frame, given in pieces, to the sandbox. It does not
	// wait for a reader: if there is no room, the frame is lost, as on a wire.
	WriteFrame(pieces ...[]byte) error
	// MTU is the largest IP packet that fits a frame, in bytes.
	MTU() int
	Close() error
}

// NetworkDecision is one line of a sandbox's network log.
type NetworkDecision struct {
	Time time.Time `json:"time"`
	// Protocol is tcp, udp, dns, icmp, tls, http or quic.
	Protocol string `json:"protocol"`
	// Name is the requested host name, if known.
	Name    string `json:"name,omitempty"`
	Address string `json:"address,omitempty"`
	Port    uint16 `json:"port,omitempty"`
	Allowed bool   `json:"allowed"`
	// Rule is the rule that allowed it, such as "preset:pypi" or
	// "domain:*.example.org".
	Rule string `json:"rule,omitempty"`
	// Reason says why it was refused.
	Reason string `json:"reason,omitempty"`
	// BytesOut and BytesIn are the payload sent and received by the sandbox;
	// they are final once the connection has ended.
	BytesOut int64 `json:"bytes_out"`
	BytesIn  int64 `json:"bytes_in"`
	// Closed is set on the line that reports the end of a connection.
	Closed bool `json:"closed,omitempty"`
	// Repeated counts equal decisions that were folded into this line.
	Repeated int `json:"repeated,omitempty"`
}

// NetworkCounters are the bytes that passed a gateway since it was attached.
type NetworkCounters struct {
	EgressBytes  int64 `json:"egress_bytes"`
	IngressBytes int64 `json:"ingress_bytes"`
}

// NetworkService shows what sandboxes tried to reach.
type NetworkService interface {
	// NetworkLog returns the decisions since a time, oldest first, and, with
	// follow, calls fn for new ones until ctx ends.
	NetworkLog(ctx context.Context, id string, since time.Time, follow bool, fn func(NetworkDecision) error) error
}

// PortService reaches servers inside sandboxes.
type PortService interface {
	// DialPort connects to a TCP port of a sandbox, also when the server there
	// listens on the sandbox's own loopback only. CodeConflict means that
	// nothing listens.
	DialPort(ctx context.Context, id string, port uint16) (net.Conn, error)
}

// PortDialer is implemented by a Guest that can connect to servers on the
// sandbox's loopback.
type PortDialer interface {
	DialPort(ctx context.Context, port uint16) (net.Conn, error)
}

// SSHRequest asks for a connection to the SSH server of a sandbox.
type SSHRequest struct {
	// User is whom sessions run as; the sandbox's own when empty.
	User string
	// HostKeySeed is the seed of the server's host key, an Ed25519 key.
	HostKeySeed []byte
}

// SSHService reaches the SSH servers of sandboxes.
type SSHService interface {
	// DialSSH connects to the SSH server of a sandbox, which asks for no proof of who the caller
	// is: this call has one.
	DialSSH(ctx context.Context, id string, req SSHRequest) (net.Conn, error)
}

// SSHDialer is implemented by a Guest that has an SSH server.
type SSHDialer interface {
	DialSSH(ctx context.Context, req SSHRequest) (net.Conn, error)
}

// OwnedGateway is implemented by a Gateway that shares something among
// projects.
type OwnedGateway interface {
	// SetOwner tells which project owns the sandbox. Until then none does.
	SetOwner(projectID string)
}

// SecretKeeper is implemented by a Gateway that inserts secrets into outgoing
// requests.
type SecretKeeper interface {
	// SetSecrets replaces the secrets. CodeInvalid names the one at fault. What
	// the sandbox sees of them follows from seed, and is the same for two that
	// are given the same; an empty seed is the sandbox's own.
	SetSecrets(list []Secret, seed []byte) error
	// CAPEM is the certificate authority that the sandbox must trust, or nil.
	CAPEM() []byte
	// Placeholders is what the sandbox sees, by secret name.
	Placeholders() map[string]string
}
