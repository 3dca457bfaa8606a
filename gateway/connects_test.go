package gateway

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

func init() { roles["connects"] = connects }

// connects opens N connections, a given number at a time, each until the server closes it.
func connects(args []string) error {
	n, _ := strconv.Atoi(args[1])
	parallel, _ := strconv.Atoi(args[2])
	first := []byte("x")
	if len(args) > 3 {
		first = clientHello(nil, args[3])
	}
	var mu sync.Mutex
	var errs []error
	turns := make(chan struct{}, n)
	for range n {
		turns <- struct{}{}
	}
	close(turns)
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			for range turns {
				if err := connectOnce(args[0], first); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		return fmt.Errorf("%d of %d failed: %w", len(errs), n, errors.Join(errs[:min(len(errs), 3)]...))
	}
	return nil
}

// connectOnce makes one connection. The server closes first, so the client's port is free again at
// once while the gateway's end still waits.
func connectOnce(addr string, first []byte) error {
	c, err := net.Dial("tcp4", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(hangs))
	if _, err := c.Write(first); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, c)
	return err
}

// answerAndClose is a server that closes first.
func answerAndClose(c net.Conn) {
	defer c.Close()
	if _, err := c.Read(make([]byte, 64<<10)); err != nil {
		return
	}
	_, _ = c.Write([]byte("y"))
	_ = c.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, c)
}

// portRange limits the local ports of the namespace's kernel, so that each is soon reused.
func (ns *namespace) portRange(low, high int) {
	ns.t.Helper()
	cmd := exec.Command("ip", "netns", "exec", ns.name, "sh", "-c", fmt.Sprintf("echo %d %d >/proc/sys/net/ipv4/ip_local_port_range", low, high))
	if out, err := cmd.CombinedOutput(); err != nil {
		ns.t.Fatalf("set the range of ports: %v: %s", err, out)
	}
}

// synDevice notes the segments that open connections. Nothing is read from it before start is closed.
type synDevice struct {
	bothy.NetDevice
	start chan struct{}

	// The gateway's reader owns these.
	latest map[stack.TransportEndpointID]uint32
	// repeated is set if the last frame repeats a SYN, as a guest does that waits for its answer.
	repeated bool
}

func (d *synDevice) ReadFrame(p []byte) (int, error) {
	<-d.start
	n, err := d.NetDevice.ReadFrame(p)
	d.repeated = false
	if n < ethernetSize+header.IPv4MinimumSize+header.TCPMinimumSize {
		return n, err
	}
	packet := p[ethernetSize:n]
	if id, ok := synOf(packet); ok {
		number := header.TCP(packet[header.IPv4MinimumSize:]).SequenceNumber()
		before, known := d.latest[id]
		d.repeated = known && before == number
		d.latest[id] = number
	}
	return n, err
}

// A sandbox may reuse a port at once: the new connection does not wait for the gateway's end of the
// old one. A SYN that met that would be lost, and only be repeated after a second. This counts such
// segments: how long a connection takes depends on how busy the machine is.
func TestConnectionsInARowDoNotWait(t *testing.T) {
	ns := newNamespace(t)
	dev := &synDevice{NetDevice: ns.tap(), start: make(chan struct{}), latest: map[stack.TransportEndpointID]uint32{}}
	g, outside := newLabOn(t, dev)
	var opened, awaited, met atomic.Int64
	g.link.beforeSYN = func(id stack.TransportEndpointID) {
		if dev.repeated {
			return
		}
		opened.Add(1)
		if g.connected(id) {
			awaited.Add(1)
		}
		if g.awaitClosed(id); g.connected(id) {
			met.Add(1)
		}
	}
	close(dev.start)
	outside.name("good.example", "5.6.7.8")
	outside.serve("5.6.7.8:9000", answerAndClose)
	outside.serve("5.6.7.8:443", answerAndClose)
	for _, mode := range []string{"open", "restricted"} {
		args := []string{"5.6.7.8:9000"}
		policy := open
		if mode == "restricted" {
			policy = only("good.example")
			args = []string{g.names.standIn("good.example").String() + ":443"}
		}
		if err := g.SetPolicy(policy); err != nil {
			t.Fatal(err)
		}
		for _, parallel := range []int{1, 64} {
			ns.portRange(40000, 40000+8*parallel)
			total := 500 // each port is used some sixty times
			if parallel > 1 && !testing.Short() {
				total = 2000
			}
			role := append([]string{"connects"}, args[0], fmt.Sprint(total), fmt.Sprint(parallel))
			if mode == "restricted" {
				role = append(role, "good.example")
			}
			opened.Store(0)
			awaited.Store(0)
			met.Store(0)
			if _, err := ns.run(role...); err != nil {
				t.Fatalf("%s, %d at once: %v", mode, parallel, err)
			}
			t.Logf("%s, %d at once: %d connections, %d had to wait for the gateway's old end", mode, parallel, opened.Load(), awaited.Load())
			if n := opened.Load(); n < int64(total) {
				t.Errorf("%s, %d at once: %d of %d connections were seen", mode, parallel, n, total)
			}
			if n := met.Load(); n > 0 {
				t.Errorf("%s, %d at once: %d of %d connections met the gateway's old end", mode, parallel, n, total)
			}
		}
	}
}
