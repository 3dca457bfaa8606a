package cluster

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/random"
	"github.com/bothy-dev/bothy/store"
)

// Clients of older revisions of the Model Context Protocol have sessions, which live in one run
// of a server. A session's id names the host and its epoch, so that any host can forward its
// messages.

const headerSession = "Mcp-Session-Id"

// SessionIDs returns a function that makes the ids of MCP sessions on this host.
func SessionIDs(hosts store.Hosts) func() string {
	return func() string { return fmt.Sprintf("%s.%d.%s", hosts.Self(), hosts.Epoch(), random.Hex(16)) }
}

// sessionHost returns the host and the epoch in the id of a session.
func sessionHost(id string) (name string, epoch int64, ok bool) {
	name, rest, _ := strings.Cut(id, ".")
	run, _, ok := strings.Cut(rest, ".")
	if _, err := fmt.Sscanf(run, "%d", &epoch); err != nil || !ok {
		return "", 0, false
	}
	return name, epoch, true
}

// toSession forwards an MCP message to the host that has its session, unless that run of the
// server has ended.
func (x *Router) toSession(w http.ResponseWriter, r *http.Request, t target, c Caller) bool {
	name, epoch, ok := sessionHost(t.session)
	if !ok || name == x.o.Hosts.Self() {
		return false
	}
	hosts, err := x.list(r.Context())
	if err != nil {
		x.o.Fail(w, r, err)
		return true
	}
	// The cached list may be older than the run.
	i := slices.IndexFunc(hosts, func(h bothy.ClusterHost) bool {
		return h.Name == name && h.Epoch <= epoch && h.State != bothy.HostDead && !h.Self
	})
	if i >= 0 {
		again := replayable(r)
		err := x.send(w, r, t, c, store.Ownership{Host: name, Address: hosts[i].Address}, false)
		if err == nil {
			return true
		}
		if !unsent(err) || !again(r) {
			x.o.Fail(w, r, unanswered(name, err))
			return true
		}
	}
	return false
}

// leaveSession marks a message that this host answers as sessionless if its session belongs to
// another run of a server.
func (x *Router) leaveSession(r *http.Request, id string) {
	name, epoch, ok := sessionHost(id)
	if !ok || name == x.o.Hosts.Self() && epoch == x.o.Hosts.Epoch() {
		return
	}
	r.Header.Del(headerSession)
	*r = *r.WithContext(x.o.Alone(r.Context()))
}
