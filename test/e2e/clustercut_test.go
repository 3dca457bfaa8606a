package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// wire is a proxy between a host and the database that can be cut: it then loses bytes, as a broken
// network does, and closes no connection.
type wire struct {
	dir string
	// delay is the added latency.
	delay atomic.Int64

	mu    sync.Mutex
	whole chan struct{} // closed while bytes pass
}

const pgSocket = ".s.PGSQL.5432"

// newWire makes a proxy to the database of a URL, and returns the URL of the proxy.
func newWire(t *testing.T, database string) (*wire, string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	socket := pgSocket
	if port := q.Get("port"); port != "" {
		socket = ".s.PGSQL." + port
	}
	far := filepath.Join(q.Get("host"), socket)
	dir, err := os.MkdirTemp("", "wire")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, socket))
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{dir: dir, whole: make(chan struct{})}
	close(w.whole)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go w.carry(ctx, near, far)
		}
	}()
	q.Set("host", dir)
	u.RawQuery = q.Encode()
	return w, u.String()
}

func (w *wire) carry(ctx context.Context, near net.Conn, far string) {
	defer near.Close()
	other, err := net.Dial("unix", far)
	if err != nil {
		return
	}
	defer other.Close()
	defer context.AfterFunc(ctx, func() { near.Close(); other.Close() })()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, other}, {other, near}} {
		both.Go(func() {
			defer way[1].Close()
			buf := make([]byte, 32<<10)
			for {
				n, err := way[0].Read(buf)
				time.Sleep(time.Duration(w.delay.Load()))
				w.mu.Lock()
				whole := w.whole
				w.mu.Unlock()
				select {
				case <-whole:
				case <-ctx.Done():
					return
				}
				if n > 0 {
					if _, err := way[1].Write(buf[:n]); err != nil {
						return
					}
				}
				if err != nil {
					return
				}
			}
		})
	}
	both.Wait()
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.whole = make(chan struct{})
}

func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.whole)
}

// ear receives packets that sandboxes send to this computer.
type ear struct {
	conn *net.UDPConn
	mu   sync.Mutex
	at   time.Time
	last string
}

// outside is an address of this computer that a sandbox reaches like any other host.
func outside(t *testing.T) net.IP {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
			return n.IP.To4()
		}
	}
	t.Skip("this computer has no address of its own")
	return nil
}

func newEar(t *testing.T) *ear {
	t.Helper()
	return newEarAt(t, outside(t))
}

// newEarAt returns an ear at an address of this computer.
func newEarAt(t *testing.T, ip net.IP) *ear {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: ip})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	e := &ear{conn: c}
	go func() {
		buf := make([]byte, 2048)
		for {
			n, _, err := c.ReadFromUDP(buf)
			if err != nil {
				return
			}
			e.mu.Lock()
			e.at, e.last = time.Now(), string(bytes.TrimSpace(buf[:n]))
			e.mu.Unlock()
		}
	}()
	return e
}

func (e *ear) heard() (time.Time, string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at, e.last
}

// await waits until something is received that was sent after now.
func (e *ear) await(t *testing.T) {
	t.Helper()
	_, before := e.heard()
	eventually(t, "the sandbox is heard", func() bool { _, now := e.heard(); return now != before })
}

// talk has a sandbox send numbers forever.
func (e *ear) talk(b *box) {
	b.Helper()
	program := fmt.Sprintf(`import itertools, socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in itertools.count():
    try: s.sendto(str(n).encode(), (%q, %d))
    except OSError: pass
    time.sleep(0.005)
`, e.conn.LocalAddr().(*net.UDPAddr).IP, e.conn.LocalAddr().(*net.UDPAddr).Port)
	b.write("/tmp/talk.py", program)
	b.sh("", "setsid -f python3 /tmp/talk.py >/tmp/talk.log 2>&1 </dev/null")
	e.await(b.T)
}

// cutHosts are two hosts, the first of which reaches the database through a wire.
func cutHosts(t *testing.T) (one, two *server, w *wire, e *ear, b *box) {
	t.Helper()
	e = newEar(t)
	change := func(i int, settings, store string) (string, string) {
		if i == 0 {
			w, store = newWire(t, store)
		}
		return withShortLease(settings) + fmt.Sprintf("network:\n  allow: [%s/32]\n", e.conn.LocalAddr().(*net.UDPAddr).IP), store
	}
	hosts := newHostsWith(t, change, "one", "two")
	one, two = hosts[0], hosts[1]
	b = one.boxOn(t, "one", bothy.SandboxCreate{Network: &bothy.Network{Mode: bothy.NetworkOpen}})
	e.talk(b)
	return one, two, w, e, b
}

// leaseEnd returns the end of a host's lease in the database.
func leaseEnd(t *testing.T, asked *server, name string) time.Time {
	t.Helper()
	now := time.Now()
	all, err := asked.Hosts.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		if h.Name == name {
			return now.Add(time.Duration(h.LeaseSeconds * float64(time.Second)))
		}
	}
	t.Fatalf("there is no host %s", name)
	return now
}

// A host that is cut off from the database freezes its sandboxes before its lease ends: from then on
// they send nothing. Once it is given up, it ends them and then itself.
func TestNothingLeavesAHostThatIsCutOff(t *testing.T) {
	t.Parallel()
	one, two, w, e, b := cutHosts(t)
	w.cut()
	one.logged(t, "cannot renew this host's lease; its sandboxes are frozen", 1)
	eventually(t, "the sandbox is frozen", func() bool { return isFrozen(t, one, b.id) })
	ends := leaseEnd(t, two, "one")
	if left := time.Until(ends); left <= 0 {
		t.Errorf("it was frozen %s after its lease ended", -left)
	}
	if ended := two.awaitEndOf(t, b.id); ended.Ended.Reason != bothy.EndHostLost {
		t.Errorf("it ended with %+v", ended.Ended)
	}
	if at, n := e.heard(); at.After(ends) {
		t.Errorf("packet %s left the sandbox %s after the end of its host's lease", n, at.Sub(ends))
	}
	_, last := e.heard()
	w.mend()
	if err := one.Ends(); err == nil {
		t.Error("the host that was given up continues")
	}
	if left := one.Processes(b.id); len(left) > 0 {
		t.Errorf("of the sandbox there is: %v", left)
	}
	if _, now := e.heard(); now != last {
		t.Errorf("the sandbox was heard after it had ended: %s, then %s", last, now)
	}
	one.Store = two.Store
	if err := one.Start(); err != nil {
		t.Fatal(err)
	}
}

// A host that reaches the database again before its lease ends continues as before.
func TestAHostThatIsBrieflyCutOffContinues(t *testing.T) {
	t.Parallel()
	one, two, w, e, b := cutHosts(t)
	b.write("/workspace/file", "content")
	for range 2 {
		w.cut()
		eventually(t, "the sandbox is frozen", func() bool { return isFrozen(t, one, b.id) })
		w.mend()
		e.await(t)
		inside, err := strconv.ParseInt(b.at(two).sh("", "date +%s"), 10, 64)
		if off := time.Since(time.Unix(inside, 0)); err != nil || off < -5*time.Second || off > hangs {
			t.Errorf("its clock is %s slow, %v", off, err)
		}
		if got := b.read("/workspace/file"); got != "content" {
			t.Errorf("its file contains %q", got)
		}
		if sb := b.get(); sb.State != bothy.StateRunning || sb.Resumed != nil {
			t.Errorf("it is %s, %+v", sb.State, sb.Resumed)
		}
		b.usable()
	}
	if got := b.sh("", "cat /tmp/talk.log"); strings.TrimSpace(got) != "" {
		t.Errorf("its program prints %q", got)
	}
}
