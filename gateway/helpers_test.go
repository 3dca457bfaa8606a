package gateway

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/miekg/dns"
)

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// only is a restricted network that allows these domains.
func only(domains ...string) bothy.Network {
	return bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: domains}
}

// resetAll makes the guest's kernel reset all its connections.
func (g *guest) resetAll() {
	for _, e := range g.stack.RegisteredEndpoints() {
		e.Abort()
	}
}

// query asks the gateway's resolver from inside.
func (g *guest) query(network, name string, kind uint16) *dns.Msg {
	g.t.Helper()
	m, err := g.queryAt(network, "10.0.0.1:53", name, kind)
	if err != nil {
		g.t.Fatalf("query %s: %v", name, err)
	}
	return m
}

func (g *guest) queryAt(network, server, name string, kind uint16) (*dns.Msg, error) {
	var c net.Conn
	var err error
	if network == "udp" {
		c = g.dialUDP(server)
	} else if c, err = g.dial(server); err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(hangs))
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), kind)
	co := &dns.Conn{Conn: c}
	if err := co.WriteMsg(m); err != nil {
		return nil, err
	}
	return co.ReadMsg()
}

// lookup returns the address of a name as the guest sees it, or "".
func (g *guest) lookup(name string) string {
	g.t.Helper()
	m := g.query("udp", name, dns.TypeA)
	for _, rr := range m.Answer {
		if a, ok := rr.(*dns.A); ok {
			return a.A.String()
		}
	}
	return ""
}

// dialName looks a name up and connects to it.
func (g *guest) dialName(name string, port int) (net.Conn, error) {
	addr := g.lookup(name)
	if addr == "" {
		return nil, errors.New("no address for " + name)
	}
	return g.dial(fmt.Sprintf("%s:%d", addr, port))
}

// authority is a certificate authority for test servers.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t testing.TB) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test root"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, _ := x509.ParseCertificate(der)
	return &authority{key, cert}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func (a *authority) certificate(t testing.TB, names ...string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// echoTLS is a server that echoes over TLS and has a certificate for every name, like the edge of a
// large content delivery network.
func echoTLS(t testing.TB, a *authority) func(net.Conn) {
	conf := &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		names := []string{"nameless.example"}
		if h.ServerName != "" {
			names[0] = h.ServerName
		}
		c := a.certificate(t, names...)
		return &c, nil
	}}
	return func(c net.Conn) { echo(tls.Server(c, conf)) }
}

// pingTLS speaks TLS over c with a server name and expects an echo.
func pingTLS(c net.Conn, sni string) error {
	conf := &tls.Config{ServerName: sni, InsecureSkipVerify: true}
	return ping(tls.Client(c, conf), "hello")
}

// manualClock is a clock that a test moves.
type manualClock struct {
	mu     sync.Mutex
	now    time.Time
	timers []*manualTimer
}

type manualTimer struct {
	at   time.Time
	f    func()
	done bool
}

func newManualClock() *manualClock { return &manualClock{now: time.Unix(1_700_000_000, 0)} }

func (c *manualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *manualClock) AfterFunc(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &manualTimer{at: c.now.Add(d), f: f}
	c.timers = append(c.timers, t)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		stopped := !t.done
		t.done = true
		return stopped
	}
}

// advance moves the clock and runs what is due.
func (c *manualClock) advance(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	var due []func()
	var later []*manualTimer
	for _, t := range c.timers {
		switch {
		case t.done:
		case t.at.After(c.now):
			later = append(later, t)
		default:
			t.done = true
			due = append(due, t.f)
		}
	}
	c.timers = later
	c.mu.Unlock()
	for _, f := range due {
		f()
	}
}
