package gateway

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/miekg/dns"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const (
	// maxQueries bounds the queries that are answered at the same time.
	maxQueries = 64
	// dnsTTL is the life of every answer, in seconds. It is short because the policy may change;
	// asking again is cheap, since the gateway caches.
	dnsTTL = 30
	// dnsIdle is how long a TCP connection to the resolver may be silent.
	dnsIdle = 10 * time.Second
	// maxQuery is the size of the largest query that is read.
	maxQuery = 4096
)

// serveDNS answers queries over UDP at the gateway's address.
func (g *Gateway) serveDNS() error {
	at := tcpip.FullAddress{NIC: nicID, Addr: gatewayAddress, Port: 53}
	c, err := gonet.DialUDP(g.stack, &at, nil, ipv4.ProtocolNumber)
	if err != nil {
		return fmt.Errorf("gateway: serve DNS: %w", err)
	}
	context.AfterFunc(g.ctx, func() { c.Close() })
	g.work.Go(func() { g.readQueries(c) })
	return nil
}

func (g *Gateway) readQueries(c *gonet.UDPConn) {
	b := make([]byte, maxQuery)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		select {
		case g.queries <- struct{}{}:
		default:
			continue // A resolver may drop queries when overloaded.
		}
		query := slices.Clone(b[:n])
		g.work.Go(func() {
			defer func() { <-g.queries }()
			if answer := g.answer(query, true); answer != nil {
				_, _ = c.WriteTo(answer, from)
			}
		})
	}
}

// serveDNSConn answers queries over one TCP connection.
func (g *Gateway) serveDNSConn(r *tcp.ForwarderRequest) {
	f, v := g.openDNS()
	if f == nil {
		r.Complete(true)
		g.lines.record(bothy.NetworkDecision{
			Protocol: "dns", Address: bothy.GatewayAddr.String(), Port: 53, Reason: v.reason,
		})
		return
	}
	defer g.end(f)
	c := f.accept(r)
	if c == nil {
		return
	}
	defer c.Close()
	for {
		_ = c.SetDeadline(time.Now().Add(dnsIdle))
		if err := g.answerOne(c); err != nil {
			return
		}
	}
}

// openDNS registers a flow to the resolver, so that it counts as a connection.
func (g *Gateway) openDNS() (*flow, verdict) {
	return g.open("dns", target{dst: dnsAddrPort, resolver: true})
}

func (g *Gateway) answerOne(c net.Conn) error {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint16(size[:])
	if n > maxQuery {
		return errors.New("the query is too long")
	}
	query := make([]byte, n)
	if _, err := io.ReadFull(c, query); err != nil {
		return err
	}
	select {
	case g.queries <- struct{}{}:
	case <-g.ctx.Done():
		return g.ctx.Err()
	}
	answer := g.answer(query, false)
	<-g.queries
	if answer == nil {
		return errors.New("not a question")
	}
	_, err := c.Write(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(answer)), uint16(len(answer))))
	if err == nil {
		_, err = c.Write(answer)
	}
	return err
}

// answer returns the reply to a query, or nil if the message is not a query.
func (g *Gateway) answer(query []byte, overUDP bool) []byte {
	q := new(dns.Msg)
	if err := q.Unpack(query); err != nil || q.Response {
		return nil
	}
	m := new(dns.Msg)
	m.SetReply(q)
	m.RecursionAvailable = true
	m.SetEdns0(maxQuery, false)
	m.Rcode = g.reply(q, m)
	size := dns.MinMsgSize
	if o := q.IsEdns0(); o == nil {
		m.Extra = nil
	} else {
		size = max(size, int(o.UDPSize()))
	}
	if !overUDP {
		size = dns.MaxMsgSize
	}
	m.Truncate(size)
	g.egress.Add(int64(len(query)))
	answer, err := m.Pack()
	if err != nil {
		return nil
	}
	g.ingress.Add(int64(len(answer)))
	return answer
}

// reply fills m with the answer to q and returns its code.
func (g *Gateway) reply(q, m *dns.Msg) int {
	if q.Opcode != dns.OpcodeQuery {
		return dns.RcodeNotImplemented
	}
	if len(q.Question) != 1 || q.Question[0].Qclass != dns.ClassINET {
		return dns.RcodeRefused
	}
	question := q.Question[0]
	p := g.currentPolicy()
	name, ok := canonicalName(question.Name)
	if !ok {
		return g.refuseName(clip(question.Name), refuse("that is not a host name"), m)
	}
	if reverse, ok := g.replyReverse(p, question, m); ok {
		return reverse
	}
	v := p.name(name)
	if !v.allowed {
		return g.refuseName(name, v, m)
	}
	ctx, cancel := context.WithTimeout(g.ctx, lookupTime)
	defer cancel()
	if p.mode == bothy.NetworkOpen && slices.Contains(passedOn, question.Qtype) {
		return g.passOn(ctx, question, name, v, m)
	}
	return g.replyAddress(ctx, p, question, name, v, m)
}

// refuseName answers for a name that the policy refuses as for one that does not exist: programs
// take any other code for a passing failure, and ask again for seconds. An extended error says why.
func (g *Gateway) refuseName(name string, v verdict, m *dns.Msg) int {
	g.recordName(name, v)
	o := m.IsEdns0()
	o.Option = append(o.Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeBlocked, ExtraText: refusalText(v.reason)})
	return dns.RcodeNameError
}

// replyAddress answers for an allowed name: an A query with the name's stand-in, or in mode open
// with its real addresses, and every other query with no records, provided that the name exists.
func (g *Gateway) replyAddress(ctx context.Context, p *policy, q dns.Question, name string, v verdict, m *dns.Msg) int {
	addrs, err := g.reachable(ctx, name)
	if g.currentPolicy() != p {
		// The policy has changed: the guest will ask again under the new one.
		return dns.RcodeServerFailure
	}
	var bad *forbiddenError
	switch {
	case errors.As(err, &bad):
		// This is the answer for names that do not exist, so that a sandbox cannot find out the
		// names of the operator's network.
		g.recordName(name, refuse("%s", bad.reason()))
		return dns.RcodeNameError
	case errors.Is(err, errNoName):
		g.recordName(name, v)
		return dns.RcodeNameError
	case err != nil:
		return dns.RcodeServerFailure
	}
	g.recordName(name, v)
	if q.Qtype != dns.TypeA {
		return dns.RcodeSuccess
	}
	_, excepted := p.exception(name)
	tied := p.mode == bothy.NetworkRestricted || excepted || g.secretHost(name)
	if tied {
		addrs = []netip.Addr{g.names.standIn(name)}
	}
	for _, a := range addrs {
		if a.Is4() {
			if !tied {
				g.names.record(a, name)
			}
			m.Answer = append(m.Answer, &dns.A{Hdr: rrHeader(q.Name, dns.TypeA), A: a.AsSlice()})
		}
	}
	return dns.RcodeSuccess
}

func rrHeader(name string, kind uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: dnsTTL}
}

// replyReverse answers queries for the name of a stand-in address. Forbidden addresses have no
// name.
func (g *Gateway) replyReverse(p *policy, q dns.Question, m *dns.Msg) (rcode int, ok bool) {
	name := strings.ToLower(q.Name)
	if !strings.HasSuffix(name, ".in-addr.arpa.") && !strings.HasSuffix(name, ".ip6.arpa.") {
		return 0, false
	}
	addr, ok := reverseAddr(name)
	if !ok || p.mode == bothy.NetworkOff {
		return dns.RcodeNameError, true
	}
	if host := g.names.at(addr); host != "" && q.Qtype == dns.TypePTR {
		m.Answer = []dns.RR{&dns.PTR{Hdr: rrHeader(q.Name, dns.TypePTR), Ptr: host + "."}}
		return dns.RcodeSuccess, true
	}
	if p.mode == bothy.NetworkOpen && g.guard.check(addr) == "" {
		return 0, false
	}
	return dns.RcodeNameError, true
}

// reverseAddr parses the IPv4 address in a name under in-addr.arpa.
func reverseAddr(name string) (netip.Addr, bool) {
	labels := strings.Split(strings.TrimSuffix(name, ".in-addr.arpa."), ".")
	slices.Reverse(labels)
	addr, err := netip.ParseAddr(strings.Join(labels, "."))
	return addr, err == nil && addr.Is4()
}

func (g *Gateway) recordName(name string, v verdict) {
	g.lines.record(bothy.NetworkDecision{
		Protocol: "dns", Name: name, Port: 53, Allowed: v.allowed, Rule: v.rule, Reason: v.reason,
	})
}

// clip keeps an invalid name from filling the log.
func clip(s string) string {
	if len(s) > maxName {
		s = s[:maxName]
	}
	return strings.ToValidUTF8(s, "?")
}
