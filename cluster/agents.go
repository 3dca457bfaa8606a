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

// Clients of the older revisions of the agents' protocol have sessions, which are one run of a
// server's. Their ids say whose, so that whichever host gets a message knows.

const headerSession = "Mcp-Session-Id"

// SessionIDs makes the ids of the sessions that agents begin on this host.
func SessionIDs(hosts store.Hosts) func() string {
	return func() string { return fmt.Sprintf("%s.%d.%s", hosts.Self(), hosts.Epoch(), random.Hex(16)) }
}

// sessionHost finds which run of which host has a session.
func sessionHost(id string) (name string, epoch int64, ok bool) {
	name, rest, _ := strings.Cut(id, ".")
	run, _, ok := strings.Cut(rest, ".")
	if _, err := fmt.Sscanf(run, "%d", &epoch); err != nil || !ok {
		return "", 0, false
	}
	return name, epoch, true
}

// toSession leads the message of an agent to the host that has its session, if that run of a
// server is not over.
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
	// The list may be a moment old, and the run younger than it.
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

// leaveSession has a message stand for itself that this host answers and that is in a session of
// another run of a server.
func (x *Router) leaveSession(r *http.Request, id string) {
	name, epoch, ok := sessionHost(id)
	if !ok || name == x.o.Hosts.Self() && epoch == x.o.Hosts.Epoch() {
		return
	}
	r.Header.Del(headerSession)
	*r = *r.WithContext(x.o.Alone(r.Context()))
}
