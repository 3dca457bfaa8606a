package cluster

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// The headers by which a host tells another what it knows of a request. They are believed
// only on connections between hosts, and never let in from outside.
const (
	headerRemote  = "Bothy-Peer-Remote"
	headerScheme  = "Bothy-Peer-Scheme"
	headerProject = "Bothy-Peer-Project"
	headerToken   = "Bothy-Peer-Token"
	// headerPlace says that the host is asked for a new sandbox, and that another one is
	// asked where it refuses.
	headerPlace = "Bothy-Peer-Place"
	// headerLeft is in an answer to that, and says that nothing was done and another host is to
	// be asked, in whatever form the answer itself says so.
	headerLeft = "Bothy-Peer-Left"
	// headerAlone marks a message of an agent that belongs to no session of the host's.
	headerAlone = "Bothy-Peer-Alone"
)

var peerHeaders = []string{headerRemote, headerScheme, headerProject, headerToken, headerPlace, headerAlone}

// Peer is what another host says of a request that it passes on.
type Peer struct {
	// Host is its name.
	Host string
	// Remote and Scheme are where the request came from, and how.
	Remote, Scheme string
	// Project and TokenID are the key's for which it speaks, where the request brings none.
	Project, TokenID string
	// Alone says that the message of an agent belongs to no session.
	Alone bool
}

type peerKey struct{}

// PeerFrom returns the host that a request came from, or nil.
func PeerFrom(ctx context.Context) *Peer {
	p, _ := ctx.Value(peerKey{}).(*Peer)
	return p
}

// FromPeers takes what hosts send: next gets the requests that they pass on, move the sandboxes
// that they offer, trees the requests for files and pieces those for what the object storage has
// lost of them, and join those of who wants to be a host.
func FromPeers(next, join, move, trees, pieces http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == joinPath {
			join.ServeHTTP(w, r)
			return
		}
		host := peerName(r.TLS)
		if host == "" {
			http.Error(w, "only hosts of the cluster may ask here", http.StatusForbidden)
			return
		}
		if r.URL.Path == movePath {
			move.ServeHTTP(w, r)
			return
		}
		if r.URL.Path == piecePath {
			pieces.ServeHTTP(w, r)
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

// placing is the answer to a request for a new sandbox. It tells the host that asked whether
// another one is to be asked.
type placing struct {
	http.ResponseWriter
	left func() bool
	told bool
}

func (p *placing) tell() {
	if !p.told && p.left() {
		p.Header().Set(headerLeft, "1")
	}
	p.told = true
}

func (p *placing) WriteHeader(status int) {
	if status >= 200 {
		p.tell()
	}
	p.ResponseWriter.WriteHeader(status)
}

func (p *placing) Write(b []byte) (int, error) {
	p.tell()
	return p.ResponseWriter.Write(b)
}

// Flush has what is said of the answer wait until something is known of it.
func (p *placing) Flush() {
	if p.told {
		_ = http.NewResponseController(p.ResponseWriter).Flush()
	}
}

func (p *placing) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func dropPeerHeaders(h http.Header) {
	for _, name := range peerHeaders {
		h.Del(name)
	}
}

// transport speaks to the hosts, whose names stand in the URLs in the place of addresses.
type transport struct {
	authority *Authority
	conns     watchedConns
	// each has connections of its own, by name and address.
	mu  sync.Mutex
	all map[string]*http.Transport
}

const (
	dialTime = 3 * time.Second
	// patience is how long another host may take before it asks for the body of a request: it
	// has it wait while a sandbox moves.
	patience = 2 * time.Minute
	// peerBuffer is what is copied at once between hosts. With less, files cost more system
	// calls than encryption.
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

// notSentError says that nothing of a request has left.
type notSentError struct{ error }

func (e *notSentError) Unwrap() error { return e.error }

func unsent(err error) bool { return errors.As(err, new(*notSentError)) }
