package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

var (
	off        = bothy.Network{Mode: bothy.NetworkOff}
	open       = bothy.Network{Mode: bothy.NetworkOpen}
	restricted = bothy.Network{Mode: bothy.NetworkRestricted}
)

func TestHostReachesTheGuestInEveryMode(t *testing.T) {
	l := newLab(t)
	srv := l.listen(49983)
	go func() {
		for {
			c, err := srv.Accept()
			if err != nil {
				return
			}
			go echo(c)
		}
	}()
	for _, n := range []bothy.Network{off, restricted, open} {
		l.policy(n)
		c, err := l.gateway.Dial(t.Context(), 49983)
		if err != nil {
			t.Fatalf("%s: %v", n.Mode, err)
		}
		if err := ping(c, "hello"); err != nil {
			t.Fatalf("%s: %v", n.Mode, err)
		}
		if from := c.LocalAddr().(*net.TCPAddr).IP.String(); from != "10.0.0.1" {
			t.Errorf("the guest was dialled from %s", from)
		}
		c.Close()
	}
	if n := l.gateway.Counters(); n != (bothy.NetworkCounters{}) {
		t.Errorf("the host's own connections were counted: %+v", n)
	}
}

func TestDialToAClosedPortIsRefusedAtOnce(t *testing.T) {
	l := newLab(t)
	start := time.Now()
	_, err := l.gateway.Dial(t.Context(), 1)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("got %v", err)
	}
	if d := time.Since(start); d > hangs/2 {
		t.Errorf("the refusal took %v", d)
	}
}

func TestDialGivesUpWithItsContext(t *testing.T) {
	host, _ := newNetDevice(65000)
	g, err := New(host, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
	defer cancel()
	if _, err := g.Dial(ctx, 80); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
}

func TestNothingPassesBeforeAPolicyIsSet(t *testing.T) {
	l := newLab(t)
	l.net.serve("5.6.7.8:80", echo)
	if _, err := l.dial("5.6.7.8:80"); err == nil {
		t.Fatal("a connection left a gateway without a policy")
	}
	if dialled, _ := l.net.seen(); len(dialled) > 0 {
		t.Fatalf("the gateway dialled %v", dialled)
	}
}

func TestOpenPassesDataBothWays(t *testing.T) {
	l := newLab(t)
	l.net.serve("5.6.7.8:80", echo)
	l.policy(open)
	c := l.mustDial("5.6.7.8:80")
	if err := ping(c, "hello"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "five bytes each way are counted", func() bool {
		return l.gateway.Counters() == bothy.NetworkCounters{EgressBytes: 5, IngressBytes: 5}
	})
}

func TestRefusedConnectionIsResetAtOnce(t *testing.T) {
	l := newLab(t)
	l.policy(off)
	start := time.Now()
	if _, err := l.dial("5.6.7.8:80"); err == nil {
		t.Fatal("connected")
	}
	if d := time.Since(start); d > hangs/2 {
		t.Errorf("the refusal took %v", d)
	}
}

func TestUpstreamRefusalReachesTheGuest(t *testing.T) {
	l := newLab(t)
	l.policy(open)
	if _, err := l.dial("5.6.7.8:81"); err == nil {
		t.Fatal("connected to a port where nothing listens")
	}
}

func TestOpenConnectionEndsWhenThePolicyCloses(t *testing.T) {
	l := newLab(t)
	l.net.serve("5.6.7.8:80", echo)
	l.net.serve("5.6.7.9:80", echo)
	l.policy(open)
	stays, goes := l.mustDial("5.6.7.8:80"), l.mustDial("5.6.7.9:80")
	for _, c := range []net.Conn{stays, goes} {
		if err := ping(c, "hello"); err != nil {
			t.Fatal(err)
		}
	}
	l.policy(bothy.Network{Mode: bothy.NetworkRestricted, AllowCIDRs: prefixes("5.6.7.8/32")})
	_ = goes.SetDeadline(time.Now().Add(hangs))
	if _, err := goes.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the connection that is no longer allowed ended with %v, want a reset", err)
	}
	if err := ping(stays, "still here"); err != nil {
		t.Errorf("the connection that is still allowed: %v", err)
	}
	l.policy(off)
	if err := ping(stays, "gone"); err == nil {
		t.Error("a connection survived mode off")
	}
}

func TestHalfCloseAndResetArePassedOn(t *testing.T) {
	l := newLab(t)
	l.policy(open)
	l.net.serve("5.6.7.8:80", func(c net.Conn) {
		defer c.Close()
		b, _ := io.ReadAll(c)
		_, _ = c.Write(append([]byte("got "), b...))
	})
	c := l.mustDial("5.6.7.8:80")
	_, _ = c.Write([]byte("all"))
	_ = c.(interface{ CloseWrite() error }).CloseWrite()
	_ = c.SetDeadline(time.Now().Add(hangs))
	if b, err := io.ReadAll(c); err != nil || string(b) != "got all" {
		t.Errorf("after a half-close: %q, %v", b, err)
	}

	gone := make(chan error, 1)
	l.net.serve("5.6.7.8:81", func(c net.Conn) {
		defer c.Close()
		_, err := io.ReadAll(c)
		gone <- err
	})
	r := l.mustDial("5.6.7.8:81")
	_, _ = r.Write([]byte("x"))
	l.resetAll()
	select {
	case err := <-gone:
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a reset arrived as %v", err)
		}
	case <-time.After(hangs):
		t.Error("the reset did not arrive")
	}

	l.net.serve("5.6.7.8:82", func(c net.Conn) {
		_, _ = c.Read(make([]byte, 1))
		resetConn(c)
	})
	s := l.mustDial("5.6.7.8:82")
	_, _ = s.Write([]byte("x"))
	_ = s.SetDeadline(time.Now().Add(hangs))
	if _, err := s.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a reset from outside arrived as %v", err)
	}
}

func TestUDPPassesWhereThePolicyAllowsIt(t *testing.T) {
	l := newLab(t)
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	go func() {
		b := make([]byte, 65536)
		for {
			n, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = pc.WriteTo(b[:n], from)
		}
	}()
	l.net.at("udp", "5.6.7.8:9000", pc.LocalAddr())
	l.policy(restricted)
	c := l.dialUDP("5.6.7.8:9000")
	if answered(c) {
		t.Fatal("a datagram left a restricted sandbox")
	}
	l.policy(open)
	c = l.dialUDP("5.6.7.8:9000")
	if err := ping(c, "hello"); err != nil {
		t.Fatal(err)
	}
	l.policy(bothy.Network{Mode: bothy.NetworkRestricted, AllowCIDRs: prefixes("5.6.7.0/24")})
	if err := ping(c, "by its network"); err != nil {
		t.Fatalf("a network that is allowed: %v", err)
	}
	big := string(make([]byte, 60000))
	if err := ping(c, big); err != nil {
		t.Fatalf("a large datagram: %v", err)
	}
	l.policy(off)
	if answered(c) {
		t.Fatal("a datagram left after mode off")
	}
}

// answered sends a datagram and waits briefly for an answer.
func answered(c net.Conn) bool {
	_ = c.SetDeadline(time.Now().Add(200 * time.Millisecond))
	_, _ = c.Write([]byte("hello"))
	_, err := c.Read(make([]byte, 5))
	return err == nil
}

func TestCloseEndsEverything(t *testing.T) {
	l := newLab(t)
	l.net.serve("5.6.7.8:80", echo)
	l.policy(open)
	c := l.mustDial("5.6.7.8:80")
	if err := ping(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := l.gateway.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.gateway.Close(); err != nil {
		t.Fatalf("closing twice: %v", err)
	}
	if _, err := l.gateway.Dial(t.Context(), 80); err == nil {
		t.Error("a closed gateway dialled")
	}
}
