package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/bothy-dev/bothy"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	// firstBytesTime bounds how long the guest may take to say, in TLS or HTTP, which host it
	// wants.
	firstBytesTime = 10 * time.Second
	// closeTime bounds how long the guest may take to read why it was refused.
	closeTime = time.Second
)

// serveName serves a connection to an address that stands for a name. The outside is dialled
// first, so that the guest sees a refused connection as refused.
func (g *Gateway) serveName(f *flow, v verdict, r *tcp.ForwarderRequest) {
	var up net.Conn
	if name := f.target().name; name != "" {
		var err error
		if up, err = g.dialName(f.ctx, name, f.to.dst.Port()); err != nil {
			r.Complete(true)
			g.lines.record(f.unreachable("tcp", v, err))
			return
		}
		defer up.Close()
		f.onRevoke(func() { resetConn(up) })
	}
	guest := f.accept(r)
	if guest == nil {
		return
	}
	defer guest.Close()
	s := &session{g: g, f: f, guest: &client{guestConn: guest, patience: g.patience, heads: &g.heads}, up: up, verdict: v, protocol: "tcp"}
	defer s.guest.uncount()
	s.serve()
}

// dialName connects to one of a name's addresses, after the guard has seen it.
func (g *Gateway) dialName(ctx context.Context, name string, port uint16) (net.Conn, error) {
	addrs, err := g.reachable(ctx, name)
	if err == nil {
		addrs, err = g.currentPolicy().open(name, addrs)
	}
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		var c net.Conn
		if c, err = g.dial(ctx, "tcp", netip.AddrPortFrom(a, port)); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// unreachable is the log line about a name that could not, or must not, be reached.
func (f *flow) unreachable(protocol string, v verdict, err error) bothy.NetworkDecision {
	var bad *forbiddenError
	if errors.As(err, &bad) {
		return f.decision(protocol, refuse("%s", bad.reason()))
	}
	return f.failed(protocol, v, err)
}

// session is a connection that must prove that it is for the name that its address stands for.
type session struct {
	g       *Gateway
	f       *flow
	guest   *client
	verdict verdict
	// up is nil until the name is known.
	up       net.Conn
	protocol string
	answer   answerWatch
	// intercepted is set if the gateway terminates TLS itself.
	intercepted bool
	// ended is nil until inbound runs, and then receives its error.
	ended chan error
}

func (s *session) serve() {
	s.answer.first = make(chan bool, 1)
	forward, err := s.inspect()
	if err == errNothingSaid {
		s.leave()
		return
	}
	if err != nil {
		s.deny(err)
		return
	}
	s.g.lines.record(s.f.decision(s.protocol, s.verdict))
	if s.intercepted {
		err = s.runIntercepted(forward)
	} else {
		err = s.run(forward)
	}
	s.g.lines.record(s.f.closing(s.protocol, s.verdict.rule, err))
}

// inspect reads the beginning of what the guest sends, decides, and returns a
// function that carries the rest.
func (s *session) inspect() (forward func() error, err error) {
	t := s.f.target()
	if t.unchecked {
		return s.forwardAll, nil
	}
	web := webPorts[t.dst.Port()]
	if web || s.g.secretHost(t.name) {
		s.guest.setPatience()
		defer s.guest.clearPatience()
	} else {
		// In some protocols the server speaks first. The address is the name's own and the port
		// was allowed, so it is allowed.
		s.startInbound()
	}
	for {
		switch isHTTP, unclear := looksHTTP(s.guest.buf); {
		case len(s.guest.buf) > 0 && s.guest.buf[0] == recordHandshake:
			return s.inspectTLS()
		case isHTTP:
			return s.inspectHTTP()
		case len(s.guest.buf) > 0 && !unclear && web:
			return nil, fmt.Errorf("port %d is for TLS and HTTP, and this is neither", t.dst.Port())
		case len(s.guest.buf) > 0 && !unclear:
			return s.forwardAll, nil
		}
		if err := s.guest.more(maxHead); err == io.EOF && !web {
			return s.forwardAll, nil
		} else if err != nil {
			return nil, s.noHostError(err)
		}
	}
}

func (s *session) forwardAll() error { return s.guest.passAll(s.up, s.f.out.add) }

// errNothingSaid is not a refusal: clients open connections in advance.
var errNothingSaid = errors.New("nothing was sent")

// leave ends a connection over which nothing was sent.
func (s *session) leave() {
	s.g.lines.record(s.f.closing(s.protocol, s.verdict.rule, errNothingSaid))
	if s.up != nil {
		_ = s.up.Close()
	}
}

// noHostError returns the error for a guest that did not say which host it wants.
func (s *session) noHostError(err error) error {
	if err == io.EOF && len(s.guest.buf) == 0 && s.ended == nil {
		return errNothingSaid
	}
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return fmt.Errorf("the connection did not say within %v which host it is for", s.g.patience)
	}
	if err == io.EOF {
		return errors.New("the connection ended before it said which host it is for")
	}
	return err
}

func (s *session) inspectTLS() (func() error, error) {
	s.protocol = "tls"
	s.guest.setPatience()
	defer s.guest.clearPatience()
	sni, used, err := s.guest.hello()
	if err != nil {
		return nil, s.noHostError(err)
	}
	if err := s.bind(sni, "the TLS ClientHello"); err != nil {
		return nil, err
	}
	if s.g.secretHost(sni) {
		if !s.g.intercepted.take(1) {
			return nil, fmt.Errorf("the sandbox has too many connections to hosts with secrets (%d)", maxIntercepted)
		}
		s.intercepted = true
		return func() error { return s.intercept(sni) }, nil
	}
	return func() error { return s.guest.forwardTLS(sni, used, s.up, s.f.out.add) }, nil
}

func (s *session) inspectHTTP() (func() error, error) {
	s.protocol = "http"
	s.guest.setPatience()
	defer s.guest.clearPatience()
	r, err := s.guest.request()
	if err != nil {
		return nil, s.noHostError(err)
	}
	if err := s.bind(r.host, "the HTTP request"); err != nil {
		return nil, err
	}
	return func() error { return s.guest.forwardHTTP(r.host, r, s.upgraded, s.up, s.f.out.add) }, nil
}

// bind compares the name that the connection claims with the one it was looked up by. If that is
// no longer known, the claim counts, under the same rules: the gateway itself resolves the name
// and dials.
func (s *session) bind(claim, where string) error {
	name := s.f.target().name
	if name == claim {
		return nil
	}
	if name != "" {
		return fmt.Errorf("%s is for %s, and the connection is to %s", where, claim, name)
	}
	if s.verdict = s.g.rename(s.f, claim); !s.verdict.allowed {
		return errors.New(s.verdict.reason)
	}
	up, err := s.g.dialName(s.f.ctx, claim, s.f.to.dst.Port())
	if err != nil {
		return errors.New("could not connect: " + plainError(err))
	}
	s.up = up
	s.f.onRevoke(func() { resetConn(up) })
	return nil
}

// answerWatch checks in the first bytes from the outside whether the server agrees to leave
// HTTP.
type answerWatch struct {
	seen  []byte
	first chan bool
}

// see returns whether it needs more bytes for that.
func (a *answerWatch) see(b []byte) (more bool) {
	const want = "HTTP/1.1 101"
	missing := len(want) - len(a.seen)
	if missing > 0 {
		a.seen = append(a.seen, b[:min(len(b), missing)]...)
		if len(a.seen) == len(want) {
			a.first <- string(a.seen) == want
		}
	}
	return len(a.seen) < len(want)
}

// upgraded reports whether the server agreed to leave HTTP. It waits for the server's first
// answer.
func (s *session) upgraded() bool {
	select {
	case yes := <-s.answer.first:
		return yes
	case err := <-s.ended:
		s.ended <- err
	case <-s.f.ctx.Done():
	}
	return false
}

// startInbound copies data from the outside to the guest.
func (s *session) startInbound() {
	if s.ended != nil {
		return
	}
	s.ended = make(chan error, 1)
	go func() {
		err := s.guest.receiveFrom(s.up, s.answer.see, s.f.in.add)
		if err == nil {
			err = s.guest.CloseWrite()
		}
		if err != nil {
			s.guest.abort()
			resetConn(s.up)
		}
		s.ended <- err
	}()
}

// run carries the connection to its end.
func (s *session) run(forward func() error) error {
	s.startInbound()
	err := forward()
	if err == nil {
		err = closeWrite(s.up)
	}
	if err != nil {
		s.guest.abort()
		resetConn(s.up)
	}
	var no refusal
	if errors.As(err, &no) {
		s.g.lines.record(s.f.decision(s.protocol, refuse("%s", no)))
	}
	if inbound := <-s.ended; err == nil || errors.Is(err, net.ErrClosed) {
		err = inbound
	}
	_ = s.up.Close()
	if err != nil {
		return fmt.Errorf("ended early: %s", plainError(err))
	}
	return nil
}

// deny ends a connection that may not continue. If the outside has not sent anything yet, the
// guest gets the reason in the protocol that it speaks.
func (s *session) deny(err error) {
	reason := err.Error()
	if why := s.f.whyRevoked(); why != "" {
		reason = why
	}
	s.g.lines.record(s.f.decision(s.protocol, refuse("%s", reason)))
	if s.up != nil {
		resetConn(s.up)
	}
	if s.ended != nil {
		s.guest.abort()
		<-s.ended
		return
	}
	switch s.protocol {
	case "tls":
		s.guest.writeAndClose(tlsAlert)
	case "http":
		s.guest.writeAndClose(forbiddenPage(reason))
	default:
		s.guest.abort()
	}
}

func forbiddenPage(reason string) []byte {
	body := refusalText(reason) + "\n"
	return fmt.Appendf(nil, "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"Connection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}
