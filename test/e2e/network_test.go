package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// lure listens on the host's loopback and on every address, and counts connections and packets.
type lure struct {
	tcp, udp []string // ports, one of each kind of socket
	visitors atomic.Int64
}

func newLure(t *testing.T) *lure {
	t.Helper()
	l := &lure{}
	for _, at := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::]:0"} {
		s, err := net.Listen("tcp", at)
		if err != nil {
			if strings.HasPrefix(at, "[") {
				continue // a host without IPv6
			}
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		go func() {
			for {
				c, err := s.Accept()
				if err != nil {
					return
				}
				l.visitors.Add(1)
				c.Close()
			}
		}()
		u, err := net.ListenPacket("udp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { u.Close() })
		go func() {
			for b := make([]byte, 1500); ; {
				_, from, err := u.ReadFrom(b)
				if err != nil {
					return
				}
				l.visitors.Add(1)
				_, _ = u.WriteTo([]byte("welcome"), from)
			}
		}()
		l.tcp = append(l.tcp, portOf(s.Addr()))
		l.udp = append(l.udp, portOf(u.LocalAddr()))
	}
	return l
}

func portOf(a net.Addr) string {
	_, port, _ := net.SplitHostPort(a.String())
	return port
}

// hostAddresses returns this host's addresses, loopback included.
func hostAddresses(t *testing.T) []string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"127.0.0.1", "127.0.0.53", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1"}
	for _, a := range addresses {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			all = append(all, p.Addr().String())
		}
	}
	return all
}

type targets struct {
	TCP  []string `json:"tcp"`
	UDP  []string `json:"udp"`
	Ping []string `json:"ping"`
}

// add adds every combination of addresses and ports.
func (x *targets) add(addresses, tcp, udp []string) {
	for _, a := range addresses {
		for _, p := range tcp {
			x.TCP = append(x.TCP, net.JoinHostPort(a, p))
		}
		for _, p := range udp {
			x.UDP = append(x.UDP, net.JoinHostPort(a, p))
		}
	}
}

func (x *targets) String() string {
	b, err := json.Marshal(x)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestNothingLeavesAnOfflineSandbox(t *testing.T) {
	t.Parallel()
	besides(t)
	b, l := newBox(t, bothy.SandboxCreate{}), newLure(t)
	_, api, _ := net.SplitHostPort(shared.Address)

	x := &targets{Ping: []string{"10.0.0.3:0", "198.51.100.7:0", "203.0.113.9:0"}}
	x.add(hostAddresses(t), append([]string{api}, l.tcp...), l.udp)
	var cable []string
	for i := range 10 {
		if i != 2 {
			cable = append(cable, fmt.Sprintf("10.0.0.%d", i))
		}
	}
	x.add(append(cable, "10.0.1.1"), []string{"80", "49983", api}, []string{"67", "5353"})
	x.add([]string{"10.0.0.255", "255.255.255.255", "224.0.0.1", "224.0.0.251", "ff02::1"}, nil, []string{"67", "5353"})
	// Documentation addresses, which stand for the internet, and those of metadata services.
	x.add([]string{"198.51.100.7", "203.0.113.9", "169.254.169.254", "100.64.0.1", "2001:db8::1", "::ffff:198.51.100.7", "64:ff9b::c633:6407"},
		[]string{"53", "80", "443"}, []string{"53", "123", "443"})
	x.add([]string{"10.0.0.1"}, append([]string{"7700", "8080"}, l.tcp...), l.udp)

	asEachUser(t, func(t *testing.T, user string) {
		b.attack(user, "network.py", x.String()).refused(t, "listen in the guest's place: 0.0.0.0", "listen in the guest's place: ::")
	})
	// A process in the sandbox that listens on every address must not receive the guest's connections.
	b.try(bothy.ExecRequest{Command: bothy.Command{Args: []string{"python3", "-m", "http.server", "49983"}}, Background: true})
	b.sh("", "until exec 3<>/dev/tcp/127.0.0.1/49983; do sleep 0.1; done 2>/dev/null")
	for range 10 {
		b.usable()
	}
	if n := l.visitors.Load(); n > 0 {
		t.Errorf("%d connections or packets reached the host", n)
	}
	refusals := b.decisions()
	if len(refusals) == 0 {
		t.Error("the network log is empty")
	}
	for _, d := range refusals {
		if d.Allowed {
			t.Errorf("the gateway allowed %+v", d)
		}
	}
}

func (b *box) decisions() []bothy.NetworkDecision {
	b.Helper()
	var all []bothy.NetworkDecision
	err := b.s.Network.NetworkLog(b.ctx, b.id, time.Time{}, false, func(d bothy.NetworkDecision) error {
		all = append(all, d)
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return all
}

// Even an open network does not lead to the host itself.
func TestTheHostIsClosedToAnOpenSandbox(t *testing.T) {
	t.Parallel()
	besides(t)
	b := newBox(t, bothy.SandboxCreate{Network: &bothy.Network{Mode: bothy.NetworkOpen}})
	l := newLure(t)
	_, api, _ := net.SplitHostPort(shared.Address)
	var tcp []string
	for _, a := range hostAddresses(t) {
		for _, p := range append([]string{api}, l.tcp...) {
			tcp = append(tcp, net.JoinHostPort(a, p))
		}
	}
	asEachUser(t, func(t *testing.T, user string) {
		b.attack(user, "connect.py", tcp...).refused(t)
	})
	if n := l.visitors.Load(); n > 0 {
		t.Errorf("%d connections or packets reached the host", n)
	}
	b.usable()
}

// A server in one sandbox cannot be reached from another.
func TestNeighboursCannotMeet(t *testing.T) {
	t.Parallel()
	victim, attacker := newBox(t, bothy.SandboxCreate{}), newBox(t, bothy.SandboxCreate{})
	r := victim.try(bothy.ExecRequest{
		Command:    bothy.Command{Args: []string{"python3", "-u", "-m", "http.server", "8000", "--bind", "0.0.0.0"}},
		Background: true,
	})
	victim.sh("", "until exec 3<>/dev/tcp/10.0.0.2/8000; do sleep 0.1; done 2>/dev/null")
	if o := victim.attack("", "connect.py", "10.0.0.2:8000"); o["10.0.0.2:8000"] != "done" {
		t.Fatalf("the victim cannot reach its own server: %v", o)
	}
	var all []string
	for i := range 255 { // without the broadcast address, which never answers
		all = append(all, fmt.Sprintf("10.0.0.%d:8000", i))
	}
	attacker.attack("root", "connect.py", all...).refused(t)
	processes, err := shared.Exec.Processes(t.Context(), victim.id)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(processes, func(p bothy.ProcessInfo) bool { return p.PID == r.PID && p.Running }) {
		t.Errorf("the victim's server is not running: %+v", processes)
	}
}
