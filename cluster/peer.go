package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// The headers in which a host describes a forwarded request to another. They are trusted only
// on connections between hosts, and removed from clients' requests.
const (
	headerRemote  = "Bothy-Peer-Remote"
	headerScheme  = "Bothy-Peer-Scheme"
	headerProject = "Bothy-Peer-Project"
	headerToken   = "Bothy-Peer-Token"
	// headerPlace marks a request for a new sandbox that is sent to another host if this one
	// refuses it.
	headerPlace = "Bothy-Peer-Place"
	// headerLeft marks a refusal of such a request: nothing was done, and another host should
	// be asked.
	headerLeft = "Bothy-Peer-Left"
	// headerAlone marks an MCP message that belongs to no session on the host.
	headerAlone = "Bothy-Peer-Alone"
)

var peerHeaders = []string{headerRemote, headerScheme, headerProject, headerToken, headerPlace, headerAlone}

// Peer describes a request that another host forwarded.
type Peer struct {
	// Host is the name of that host.
	Host string
	// Remote and Scheme are the client's address and scheme.
	Remote, Scheme string
	// Project and TokenID identify the caller if the request itself has no key.
	Project, TokenID string
	// Alone says that an MCP message belongs to no session.
	Alone bool
}

type peerKey struct{}

// PeerFrom returns the host that a request came from, or nil.
func PeerFrom(ctx context.Context) *Peer {
	p, _ := ctx.Value(peerKey{}).(*Peer)
	return p
}

// FromPeers dispatches the requests of other hosts: next gets forwarded requests, move offered
// sandboxes, trees requests for files, and join those of new hosts.
func FromPeers(next, join, move, trees http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == joinPath {
			join.ServeHTTP(w, r)
			return
		}
		host := peerName(r.TLS)
		if host == "" {
			http.Error(w, "this address is only for hosts of the cluster", http.StatusForbidden)
			return
		}
		if r.URL.Path == movePath {
			move.ServeHTTP(w, r)
			return
		}
		if strings.HasPrefix(r.URL.Path, treesPath) {
			trees.ServeHTTP(w, r)
			return
		}
		p := &Peer{
			Host: host, Remote: r.Header.Get(headerRemote), Scheme: r.Header.Get(headerScheme),
			Project: r.Header.Get(headerProject), TokenID: r.Header.Get(headerToken), Alone: r.Header.Get(headerAlone) != "",
		}
		ctx := context.WithValue(r.Context(), peerKey{}, p)
		if r.Header.Get(headerPlace) != "" {
			ctx = bothy.WithElsewhere(ctx)
			w = &placing{ResponseWriter: w, left: func() bool { return bothy.LeftToOthers(ctx) }}
		}
		dropPeerHeaders(r.Header)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// placing is the response to a request for a new sandbox. It tells the forwarding host whether
// to ask another one.
type placing struct {
	http.ResponseWriter
	left    func() bool
	decided bool
}

func (p *placing) setLeft() {
	if !p.decided && p.left() {
		p.Header().Set(headerLeft, "1")
	}
	p.decided = true
}

func (p *placing) WriteHeader(status int) {
	if status >= 200 {
		p.setLeft()
	}
	p.ResponseWriter.WriteHeader(status)
}

func (p *placing) Write(b []byte) (int, error) {
	p.setLeft()
	return p.ResponseWriter.Write(b)
}

// Flush does nothing before the header is written, since headerLeft must be decided first.
func (p *placing) Flush() {
	if p.decided {
		_ = http.NewResponseController(p.ResponseWriter).Flush()
	}
}

func (p *placing) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// describe sets the headers that say where a request comes from.
func describe(h http.Header, origin bothy.Origin, remote string) {
	h.Set(headerRemote, remote)
	h.Set(headerScheme, cmp.Or(origin.Scheme, "http"))
	h.Set("X-Request-Id", origin.RequestID)
}

// maxProblem limits the error that another host answers with.
const maxProblem = 64 << 10

// answered is such an error.
type answered struct {
	Code   bothy.Code `json:"code"`
	Detail string     `json:"detail"`
	Hint   string     `json:"hint"`
}

// readProblem reads the error in an answer, and returns its text too. An answer that is no such error
// has no code.
func readProblem(res *http.Response) (text []byte, p answered, err error) {
	text, err = io.ReadAll(io.LimitReader(res.Body, maxProblem))
	if err == nil {
		_ = json.Unmarshal(text, &p)
	}
	return text, p, err
}

func dropPeerHeaders(h http.Header) {
	for _, name := range peerHeaders {
		h.Del(name)
	}
}

// transport connects to hosts. URLs contain their names instead of addresses.
type transport struct {
	authority *Authority
	conns     watchedConns
	// all has a transport for each host, by name and address.
	mu  sync.Mutex
	all map[string]*http.Transport
}

const (
	dialTime = 3 * time.Second
	// patience is how long another host may take before it asks for the body of a request: it
	// waits while a sandbox moves.
	patience = 2 * time.Minute
	// peerBuffer is the size of copies between hosts. With smaller ones, system calls cost more
	// than encryption.
	peerBuffer = 128 << 10
)

func (t *transport) to(name, address string) http.RoundTripper {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := name + " " + address
	if x := t.all[key]; x != nil {
		return x
	}
	if t.all == nil {
		t.all = map[string]*http.Transport{}
	}
	x := &http.Transport{
		TLSClientConfig: t.authority.client(name), DisableCompression: true, MaxIdleConnsPerHost: 128, IdleConnTimeout: time.Minute,
		TLSHandshakeTimeout: time.Minute, ExpectContinueTimeout: patience, ReadBufferSize: peerBuffer, WriteBufferSize: peerBuffer,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			d := net.Dialer{Timeout: dialTime, KeepAliveConfig: keepAlive}
			c, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, &notSentError{err}
			}
			return t.conns.watch(c), nil
		},
	}
	t.all[key] = x
	return x
}

// notSentError means that no part of a request was sent.
type notSentError struct{ error }

func (e *notSentError) Unwrap() error { return e.error }

func unsent(err error) bool { return errors.As(err, new(*notSentError)) }
