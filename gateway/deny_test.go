package gateway

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

func except(denied string, n bothy.Network) bothy.Network {
	n.Mode = bothy.NetworkOpen
	n.DenyCIDRs = []netip.Prefix{netip.MustParsePrefix(denied)}
	return n
}

// TestDeniedRanges denies a range, by address and by name, and nothing else.
func TestDeniedRanges(t *testing.T) {
	l := newWeb(t)
	l.net.serve("5.6.7.9:7", echo)
	l.net.serve("5.6.8.9:7", echo)
	l.policy(except("5.6.7.0/24", bothy.Network{}))
	if c, err := l.dial("5.6.7.9:7"); err == nil {
		_ = c.Close()
		t.Error("an address in the range was reached")
	}
	if _, err := l.exchange("good.example", 80, get("good.example", "/")); err == nil {
		t.Error("a name with an address in the range was reached")
	}
	c, err := l.dial("5.6.8.9:7")
	if err != nil {
		t.Fatal(err)
	}
	if err := ping(c, "hello"); err != nil {
		t.Error(err)
	}
	l.policy(except("5.6.8.0/24", bothy.Network{}))
	_ = c.SetDeadline(time.Now().Add(hangs))
	if _, err := c.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection was not cut when its address was denied: %v", err)
	}
}

// TestAllowedBeatsDenied allows names and addresses in a denied range, and binds connections to the
// name.
func TestAllowedBeatsDenied(t *testing.T) {
	l := newWeb(t)
	l.net.serve("5.6.7.9:7", echo)
	l.policy(except("0.0.0.0/0", bothy.Network{AllowDomains: []string{"good.example"}, AllowCIDRs: prefixes("5.6.7.9/32")}))
	got, err := l.exchange("good.example", 80, get("good.example", "/a"))
	if err != nil || !strings.Contains(got, " /a 0") {
		t.Errorf("got %q, %v", got, err)
	}
	if got, _ := l.exchange("good.example", 80, get("evil.example", "/a")); strings.Contains(got, " /a 0") {
		t.Errorf("another name was reached at the address of an allowed one: %q", got)
	}
	if _, err := l.exchange("evil.example", 80, get("evil.example", "/a")); err == nil {
		t.Error("another name was reached")
	}
	c, err := l.dial("5.6.7.9:7")
	if err != nil {
		t.Fatal(err)
	}
	if err := ping(c, "hello"); err != nil {
		t.Error(err)
	}
}

// TestStandInsOfDeniedNames denies the addresses of a name whose stand-in is known to the sandbox:
// the stand-in is refused and open connections are cut.
func TestStandInsOfDeniedNames(t *testing.T) {
	l := newWeb(t)
	l.policy(only("good.example"))
	addr := l.lookup("good.example")
	open, err := l.dial(net.JoinHostPort(addr, "443"))
	if err != nil {
		t.Fatal(err)
	}
	if err := pingTLS(open, "good.example"); err != nil {
		t.Fatal(err)
	}
	l.policy(except("5.6.7.0/24", bothy.Network{}))
	_ = open.SetDeadline(time.Now().Add(hangs))
	if _, err := open.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the connection was not cut: %v", err)
	}
	if c, err := l.dial(net.JoinHostPort(addr, "443")); err == nil && pingTLS(c, "good.example") == nil {
		t.Error("the name can still be reached through its stand-in")
	}
}

func TestDenyingNeedsModeOpen(t *testing.T) {
	for _, mode := range []bothy.NetworkMode{bothy.NetworkOff, bothy.NetworkRestricted} {
		n := except("5.6.7.0/24", bothy.Network{})
		n.Mode = mode
		if err := CheckPolicy(n, nil); bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("%s: %v", mode, err)
		}
	}
}
