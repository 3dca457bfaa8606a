package gateway

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

func TestSlowReaderCostsLittleMemory(t *testing.T) {
	l := newLab(t)
	l.net.serve("5.6.7.8:9000", stream)
	l.policy(open)
	c := l.mustDial("5.6.7.8:9000")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	got := settled(t, func() int64 { return l.gateway.Counters().IngressBytes })
	// The gateway's own buffer and that of the guest's kernel.
	if got > bufferMax+8<<20 {
		t.Errorf("the gateway read %d bytes for a guest that does not read", got)
	}
	c.Close()
}

// settled returns a number once it stops growing.
func settled(t *testing.T, read func() int64) int64 {
	t.Helper()
	last, same := read(), 0
	for range 1000 {
		time.Sleep(10 * time.Millisecond)
		if now := read(); now != last {
			last, same = now, 0
		} else if same++; same == 20 {
			return last
		}
	}
	t.Fatal("the number keeps growing")
	return 0
}

func TestSlowServerCostsLittleMemory(t *testing.T) {
	l := newLab(t)
	hold := make(chan struct{})
	l.net.serve("5.6.7.8:9000", func(c net.Conn) {
		defer c.Close()
		_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
		<-hold
	})
	defer close(hold)
	l.policy(open)
	c := l.mustDial("5.6.7.8:9000")
	var sent atomic.Int64
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, err := c.Write(b)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
	got := settled(t, sent.Load)
	// Both kernels' buffers count too; what matters is that there is a limit.
	if got > 32<<20 {
		t.Errorf("%d bytes were accepted for a server that does not read", got)
	}
	c.Close()
}

const manyConns = 400

func TestManyConnectionsAtOnce(t *testing.T) {
	l := newLab(t)
	l.net.serve("5.6.7.8:9000", echo)
	l.policy(open)
	var conns []net.Conn
	for range manyConns {
		c := l.mustDial("5.6.7.8:9000")
		if err := ping(c, "hello"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		if err := ping(c, "still there"); err != nil {
			t.Fatal(err)
		}
	}
	big := bytes.Repeat([]byte("x"), 1<<20)
	if err := ping(conns[manyConns-1], string(big)); err != nil {
		t.Errorf("a connection with small buffers: %v", err)
	}
	for _, c := range conns {
		c.Close()
	}
	eventually(t, "all connections end", func() bool {
		l.gateway.mu.Lock()
		defer l.gateway.mu.Unlock()
		return len(l.gateway.flows) == 0
	})
}

func TestTooManyConnectionsAreRefused(t *testing.T) {
	l := newLab(t, func(o *Options) { o.MaxConns = 3 })
	l.net.serve("5.6.7.8:9000", echo)
	l.policy(open)
	for range 3 {
		l.mustDial("5.6.7.8:9000")
	}
	if _, err := l.dial("5.6.7.8:9000"); err == nil {
		t.Error("a fourth connection was accepted")
	}
}

func TestEndlessHeadsAndLinesAreCutOff(t *testing.T) {
	l := newWeb(t)
	l.policy(only("good.example"))
	endless := bytes.Repeat([]byte("a"), maxHead)
	for what, begin := range map[string]string{
		"request line": "GET /",
		"header":       "GET / HTTP/1.1\r\nHost: good.example\r\nX: ",
		"chunk":        "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n1;",
		"trailer":      "POST / HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
	} {
		c, err := l.dialName("good.example", 80)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, begin)
		_ = c.SetDeadline(time.Now().Add(hangs))
		for range 3 {
			if _, err := c.Write(endless); err != nil {
				break
			}
		}
		_, err = io.ReadAll(c)
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			t.Errorf("an endless %s is read without a limit", what)
		}
	}
}

func TestUDPAssociationEndsWhenIdle(t *testing.T) {
	clock := newManualClock()
	l := newLab(t, func(o *Options) { o.Clock = clock })
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	go echoPackets(pc)
	l.net.at("udp", "5.6.7.8:9000", pc.LocalAddr())
	l.policy(open)
	c := l.dialUDP("5.6.7.8:9000")
	flows := func() int {
		l.gateway.mu.Lock()
		defer l.gateway.mu.Unlock()
		return len(l.gateway.flows)
	}
	for range 3 {
		if err := ping(c, "hello"); err != nil {
			t.Fatal(err)
		}
		clock.advance(udpIdle * 3 / 4)
		if n := flows(); n != 1 {
			t.Fatalf("there are %d associations, where one is in use", n)
		}
	}
	clock.advance(udpIdle)
	eventually(t, "the association ends", func() bool { return flows() == 0 })
	if err := ping(c, "again"); err != nil {
		t.Errorf("a new association after the first one ended: %v", err)
	}
}

// Many sandboxes together do not use more than the server's limit.
func TestSharesOfTheServersBuffers(t *testing.T) {
	for _, c := range []struct {
		n    int
		all  int64
		want int64
	}{
		{1, 1, bufferDefault}, {1000, 1000, bufferBudget / 1000}, {4000, 4000, bufferShare}, {1, 10_000, serverBuffers / 10_000}, {1, 1 << 20, bufferMin},
	} {
		l := newLab(t)
		var wq waiter.Queue
		ep, terr := l.gateway.stack.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, &wq)
		if terr != nil {
			t.Fatal(terr)
		}
		bound(ep, c.n, c.all)
		if got := ep.SocketOptions().GetSendBufferSize(); got != c.want {
			t.Errorf("connection %d of a sandbox and %d of all may buffer %d bytes, want %d", c.n, c.all, got, c.want)
		}
		ep.Close()
	}
	before := openFlows.Load()
	l := newLab(t)
	l.net.serve("5.6.7.8:9000", echo)
	l.policy(open)
	c := l.mustDial("5.6.7.8:9000")
	if err := ping(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if got := openFlows.Load() - before; got != 1 {
		t.Errorf("one connection is counted as %d", got)
	}
	c.Close()
	eventually(t, "it counts no more", func() bool { return openFlows.Load() == before })
}

// A connection at full speed is cut when the policy closes, like any other, even one to a name.
func TestFloodEndsWithThePolicy(t *testing.T) {
	l := newWeb(t)
	l.net.serve("5.6.7.9:80", func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1024))
		stream(c)
	})
	l.net.name("flood.example", "5.6.7.9")
	l.policy(only("flood.example"))
	c, err := l.dialName("flood.example", 80)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(c, get("flood.example", "/"))
	if _, err := io.CopyN(io.Discard, c, 64<<20); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, c)
		read <- err
	}()
	l.policy(only("good.example"))
	select {
	case err := <-read:
		if err == nil {
			t.Error("the connection ended without an error")
		}
	case <-time.After(hangs):
		t.Fatal("the connection still carries data")
	}
}

// Bytes pass unchanged, whatever the sizes of writes and reads.
func TestBytesPassUnchanged(t *testing.T) {
	l := newLab(t)
	const size = 8 << 20
	l.net.serve("5.6.7.8:9000", func(c net.Conn) {
		defer c.Close()
		r := rand.New(rand.NewPCG(1, 2))
		b := make([]byte, size)
		fill(b)
		for len(b) > 0 {
			n := min(len(b), 1+r.IntN(300_000))
			if _, err := c.Write(b[:n]); err != nil {
				return
			}
			b = b[n:]
		}
	})
	l.policy(open)
	c := l.mustDial("5.6.7.8:9000")
	var got []byte
	r := rand.New(rand.NewPCG(3, 4))
	buf := make([]byte, 200_000)
	for {
		n, err := c.Read(buf[:1+r.IntN(len(buf)-1)])
		got = append(got, buf[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := make([]byte, size)
	fill(want)
	if !bytes.Equal(got, want) {
		t.Errorf("%d bytes arrived, which differ from those sent", len(got))
	}
}

func fill(b []byte) {
	r := rand.New(rand.NewPCG(5, 6))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

// Urgent bytes keep their place in the stream and do not delay the others.
func TestUrgentBytesPassInPlace(t *testing.T) {
	l := newLab(t)
	l.net.serve("5.6.7.8:9000", func(c net.Conn) {
		defer c.Close()
		raw, err := c.(*net.TCPConn).SyscallConn()
		if err != nil {
			return
		}
		for _, part := range []struct {
			text  string
			flags int
		}{{"before ", 0}, {"!", unix.MSG_OOB}, {" between ", 0}, {"?", unix.MSG_OOB}, {" after", 0}} {
			_ = raw.Write(func(fd uintptr) bool {
				_, err := unix.SendmsgN(int(fd), []byte(part.text), nil, nil, part.flags)
				return err != unix.EAGAIN
			})
			if _, err := c.Read(make([]byte, 1)); err != nil {
				return
			}
		}
	})
	l.policy(open)
	c := l.mustDial("5.6.7.8:9000")
	_ = c.SetDeadline(time.Now().Add(hangs))
	var got []byte
	for _, part := range []string{"before ", "!", " between ", "?", " after"} {
		b := make([]byte, len(part))
		if _, err := io.ReadFull(c, b); err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		got = append(got, b...)
		_, _ = c.Write([]byte("."))
	}
	if string(got) != "before ! between ? after" {
		t.Errorf("got %q", got)
	}
}
