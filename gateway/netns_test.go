package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/bothy-dev/bothy"
	"golang.org/x/sys/unix"
)

// These tests put a real Linux kernel behind the gateway: a network namespace with a tap. The
// processes in the namespace are this test binary again, in one of the roles below.

const roleEnv = "BOTHY_GATEWAY_TEST_ROLE"

var roles = map[string]func(args []string) error{
	"tap":    openTap,
	"fetch":  fetch,
	"send":   send,
	"serve":  serveStream,
	"rounds": rounds,
	"get":    getURL,
	"dial":   dialHere,
	"say":    say,
}

func TestMain(m *testing.M) {
	role := strings.Fields(os.Getenv(roleEnv))
	if len(role) == 0 {
		os.Exit(m.Run())
	}
	if err := roles[role[0]](role[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// openTap makes a tap in its namespace and passes it back over file descriptor 3.
func openTap([]string) error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	var req struct {
		name  [unix.IFNAMSIZ]byte
		flags uint16
		_     [22]byte
	}
	copy(req.name[:], "eth0")
	req.flags = unix.IFF_TAP | unix.IFF_NO_PI
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETIFF, uintptr(unsafe.Pointer(&req))); e != 0 {
		return e
	}
	return unix.Sendmsg(3, []byte("tap"), unix.UnixRights(fd), nil, 0)
}

// fetch reads a number of bytes from an address and prints how long it took. It sends a ClientHello
// first when it is given one.
func fetch(args []string) error {
	n, _ := strconv.ParseInt(args[1], 10, 64)
	c, err := net.Dial("tcp4", args[0])
	if err != nil {
		return err
	}
	defer c.Close()
	if len(args) > 2 {
		if _, err := c.Write(clientHello(nil, args[2])); err != nil {
			return err
		}
	}
	buf := make([]byte, 1<<20)
	if _, err := io.ReadFull(c, buf[:1]); err != nil {
		return err
	}
	start := time.Now()
	for left := n; left > 0; {
		m, err := c.Read(buf[:min(left, int64(len(buf)))])
		if err != nil {
			return err
		}
		left -= int64(m)
	}
	fmt.Println(time.Since(start).Nanoseconds())
	return nil
}

// send writes a number of bytes to an address, waits until they are received, and prints how long
// it took.
func send(args []string) error {
	n, _ := strconv.ParseInt(args[1], 10, 64)
	c, err := net.Dial("tcp4", args[0])
	if err != nil {
		return err
	}
	defer c.Close()
	buf := make([]byte, 1<<20)
	start := time.Now()
	for left := n; left > 0; left -= int64(len(buf)) {
		if _, err := c.Write(buf); err != nil {
			return err
		}
	}
	_ = c.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, c)
	fmt.Println(time.Since(start).Nanoseconds())
	return nil
}

// rounds connects a number of times, exchanges a byte each time, and prints the mean time.
func rounds(args []string) error {
	n, _ := strconv.Atoi(args[1])
	start := time.Now()
	for range n {
		c, err := net.Dial("tcp4", args[0])
		if err != nil {
			return err
		}
		if err := ping(c, "x"); err != nil {
			return err
		}
		c.Close()
	}
	fmt.Println(time.Since(start).Nanoseconds() / int64(n))
	return nil
}

// serveStream streams to every client until its input ends.
func serveStream(args []string) error {
	l, err := net.Listen("tcp4", args[0])
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			switch args[1] {
			case "stream":
				go stream(c)
			case "echo":
				go echo(c)
			}
		}
	}()
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// getURL requests a URL with the gateway as its resolver and prints the answer.
func getURL(args []string) error {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, "10.0.0.1:53")
	}}
	tr := &http.Transport{DialContext: (&net.Dialer{Resolver: resolver}).DialContext}
	res, err := (&http.Client{Transport: tr, Timeout: hangs}).Get(args[0])
	if err != nil {
		return err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	fmt.Println(res.StatusCode, string(b))
	return err
}

var namespaces atomic.Int32

// namespace is one network namespace, removed when the test ends.
type namespace struct {
	t    testing.TB
	name string
}

func newNamespace(t testing.TB) *namespace {
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	ns := &namespace{t, fmt.Sprintf("bothy-test-%d-%d", os.Getpid(), namespaces.Add(1))}
	ns.ip("netns", "add", ns.name)
	t.Cleanup(func() { ns.ip("netns", "del", ns.name) })
	ns.ip("-n", ns.name, "link", "set", "lo", "up")
	return ns
}

func (ns *namespace) ip(args ...string) {
	ns.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		ns.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// command is this binary in a role, inside the namespace.
func (ns *namespace) command(role ...string) *exec.Cmd {
	cmd := exec.Command("ip", "netns", "exec", ns.name, "/proc/self/exe")
	exe, err := os.Executable()
	if err != nil {
		ns.t.Fatal(err)
	}
	cmd.Args[4] = exe
	cmd.Env = append(os.Environ(), roleEnv+"="+strings.Join(role, " "))
	return cmd
}

// run runs a role to its end and returns its output.
func (ns *namespace) run(role ...string) (string, error) {
	cmd := ns.command(role...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", strings.Join(role, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), err
}

// start runs a role until the test ends. It returns when the role is ready.
func (ns *namespace) start(role ...string) {
	ns.t.Helper()
	cmd := ns.command(role...)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		ns.t.Fatal(err)
	}
	ns.t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		ns.t.Fatalf("%v did not become ready: %v", role, err)
	}
}

// tapDevice is a tap as a NetDevice.
type tapDevice struct{ *os.File }

func (c tapDevice) ReadFrame(p []byte) (int, error) {
	n, err := c.Read(p)
	if errors.Is(err, os.ErrClosed) {
		err = net.ErrClosed
	}
	return n, err
}

func (c tapDevice) WriteFrame(pieces ...[]byte) error {
	rc, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var werr error
	err = rc.Write(func(fd uintptr) bool {
		_, werr = unix.Writev(int(fd), pieces)
		return werr != unix.EAGAIN
	})
	return errors.Join(err, werr)
}

func (c tapDevice) MTU() int { return 65000 }

// tap adds a network device to the namespace and configures its kernel as in a sandbox.
func (ns *namespace) tap() bothy.NetDevice {
	ns.t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		ns.t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "socket")
	defer unix.Close(pair[0])
	cmd := ns.command("tap")
	cmd.ExtraFiles = []*os.File{theirs}
	out, err := cmd.CombinedOutput()
	theirs.Close()
	if err != nil {
		ns.t.Fatalf("open a tap: %v: %s", err, out)
	}
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(pair[0], make([]byte, 8), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		ns.t.Fatal(err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		ns.t.Fatal(err)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		ns.t.Fatal(err)
	}
	ns.ip("-n", ns.name, "link", "set", "eth0", "address", net.HardwareAddr(bothy.GuestMAC[:]).String(), "mtu", "65000", "up")
	ns.ip("-n", ns.name, "addr", "add", "10.0.0.2/24", "dev", "eth0")
	ns.ip("-n", ns.name, "route", "add", "default", "via", "10.0.0.1")
	return tapDevice{os.NewFile(uintptr(fds[0]), "tap")}
}

// newRealLab is a lab whose guest is a Linux kernel.
func newRealLab(t testing.TB) (*namespace, *Gateway, *internet) {
	ns := newNamespace(t)
	g, outside := newLabOn(t, ns.tap())
	return ns, g, outside
}

func newLabOn(t testing.TB, dev bothy.NetDevice) (*Gateway, *internet) {
	outside := newInternet(t)
	g, err := New(dev, Options{Dialer: outside, Resolver: outside, HostAddrs: ownHostAddrs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g, outside
}

func TestLinuxBehindTheGateway(t *testing.T) {
	ns, g, outside := newRealLab(t)
	outside.name("good.example", "5.6.7.8")
	outside.name("evil.example", "5.6.7.8")
	outside.serve("5.6.7.8:80", serveHTTP(sayHost))
	for _, c := range []struct {
		n         bothy.Network
		url, want string
	}{
		{off, "http://good.example/", ""},
		{open, "http://good.example/", "200 good.example / 0"},
		{open, "http://evil.example/", "200 evil.example / 0"},
		{open, "http://5.6.7.8/", "200 5.6.7.8 / 0"},
		{only("good.example"), "http://good.example/", "200 good.example / 0"},
		{only("good.example"), "http://evil.example/", ""},
		{only("good.example"), "http://5.6.7.8/", ""},
	} {
		if err := g.SetPolicy(c.n); err != nil {
			t.Fatal(err)
		}
		got, err := ns.run("get", c.url)
		if c.want == "" && err == nil || got != c.want {
			t.Errorf("%s, %s: got %q, %v", c.n.Mode, c.url, got, err)
		}
	}
	out, err := exec.Command("ip", "netns", "exec", ns.name, "ip", "neigh").Output()
	if err != nil || !strings.Contains(string(out), "10.0.0.1") || !strings.Contains(string(out), net.HardwareAddr(bothy.GatewayMAC[:]).String()) {
		t.Errorf("the kernel's neighbours: %s, %v", out, err)
	}
	ns.start("serve", "10.0.0.2:8000", "echo")
	c, err := g.Dial(t.Context(), 8000)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := ping(c, "hello"); err != nil {
		t.Fatal(err)
	}
}

// cpuTime is the processor time that this process, the gateway, has used so far.
func cpuTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func reportRate(b *testing.B, n int64, used time.Duration, out string) {
	b.Helper()
	b.ReportMetric(used.Seconds()/(float64(n)/(1<<30)), "cpu-s/GiB")
	ns, err := strconv.ParseInt(out, 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(n)*8/float64(ns), "Gbit/s")
	b.ReportMetric(0, "ns/op")
}

const volume = 4 << 30

func BenchmarkLinuxDownload(b *testing.B) {
	ns, g, outside := newRealLab(b)
	outside.name("good.example", "5.6.7.8")
	for _, port := range []string{"9000", "443"} {
		// The server is a separate process, so that its processor time is not counted.
		outside.at("tcp", "5.6.7.8:"+port, startServer(b, port == "443"))
	}
	b.Run("open", func(b *testing.B) {
		_ = g.SetPolicy(open)
		for b.Loop() {
			used := cpuTime()
			out, err := ns.run("fetch", "5.6.7.8:9000", fmt.Sprint(int64(volume)))
			if err != nil {
				b.Fatal(err)
			}
			reportRate(b, volume, cpuTime()-used, out)
		}
	})
	b.Run("restricted", func(b *testing.B) {
		_ = g.SetPolicy(only("good.example"))
		addr := g.names.standIn("good.example").String() + ":443"
		for b.Loop() {
			used := cpuTime()
			out, err := ns.run("fetch", addr, fmt.Sprint(int64(volume)), "good.example")
			if err != nil {
				b.Fatal(err)
			}
			reportRate(b, volume, cpuTime()-used, out)
		}
	})
}

// startServer runs a streaming server as a separate process.
func startServer(b *testing.B, hello bool) net.Addr {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := l.Addr()
	l.Close()
	exe, _ := os.Executable()
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleEnv+"=serve "+addr.String()+" stream")
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		b.Fatal(err)
	}
	return addr
}

func BenchmarkLinuxUpload(b *testing.B) {
	ns, g, outside := newRealLab(b)
	outside.serve("5.6.7.8:9000", sink)
	_ = g.SetPolicy(open)
	for b.Loop() {
		used := cpuTime()
		out, err := ns.run("send", "5.6.7.8:9000", fmt.Sprint(int64(volume)))
		if err != nil {
			b.Fatal(err)
		}
		reportRate(b, volume, cpuTime()-used, out)
	}
}

func BenchmarkLinuxConnect(b *testing.B) {
	ns, g, outside := newRealLab(b)
	outside.serve("5.6.7.8:9000", echo)
	_ = g.SetPolicy(open)
	for b.Loop() {
		out, err := ns.run("rounds", "5.6.7.8:9000", "500")
		if err != nil {
			b.Fatal(err)
		}
		n, _ := strconv.ParseInt(out, 10, 64)
		b.ReportMetric(float64(n)/1e6, "ms/connection")
		b.ReportMetric(0, "ns/op")
	}
}

// newBridge connects two namespaces by a bridge, as a container host does.
func newBridge(b testing.TB) (client, server *namespace) {
	client, server = newNamespace(b), newNamespace(b)
	server.ip("-n", server.name, "link", "add", "br0", "type", "bridge")
	server.ip("-n", server.name, "addr", "add", "192.168.77.1/24", "dev", "br0")
	server.ip("-n", server.name, "link", "set", "br0", "up")
	server.ip("-n", server.name, "link", "add", "veth0", "type", "veth", "peer", "name", "eth0", "netns", client.name)
	server.ip("-n", server.name, "link", "set", "veth0", "master", "br0", "up")
	client.ip("-n", client.name, "addr", "add", "192.168.77.2/24", "dev", "eth0")
	client.ip("-n", client.name, "link", "set", "eth0", "up")
	return client, server
}

// BenchmarkBridge measures a plain bridge for comparison.
func BenchmarkBridge(b *testing.B) {
	client, server := newBridge(b)
	server.start("serve", "192.168.77.1:9000", "stream")
	server.start("serve", "192.168.77.1:9001", "echo")
	b.Run("download", func(b *testing.B) {
		for b.Loop() {
			used := cpuTime()
			out, err := client.run("fetch", "192.168.77.1:9000", fmt.Sprint(int64(volume)))
			if err != nil {
				b.Fatal(err)
			}
			reportRate(b, volume, cpuTime()-used, out)
		}
	})
	b.Run("connect", func(b *testing.B) {
		for b.Loop() {
			out, err := client.run("rounds", "192.168.77.1:9001", "500")
			if err != nil {
				b.Fatal(err)
			}
			n, _ := strconv.ParseInt(out, 10, 64)
			b.ReportMetric(float64(n)/1e6, "ms/connection")
			b.ReportMetric(0, "ns/op")
		}
	})
}
