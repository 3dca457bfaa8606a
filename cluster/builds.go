package cluster

import (
	"errors"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Only the host that runs a template build knows it. All builds of a project run on one host,
// which every host derives from the names of the live ones, so that identical requests meet
// there. When that host changes, earlier builds are looked for on all hosts.

// ofBuild reports whether a request concerns template builds, and which one.
func ofBuild(r *http.Request) (build bool, id string) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	of := func(prefix ...string) bool {
		return len(parts) >= len(prefix) && slices.Equal(parts[:len(prefix)], prefix)
	}
	at := func(i int) string {
		if i < len(parts) {
			return parts[i]
		}
		return ""
	}
	switch {
	case of("v1", "templates", "builds"):
		return true, at(3)
	case of("v1", "templates", "contexts"):
		return true, ""
	// E2B's clients.
	case r.Method == http.MethodPost && len(parts) == 2 && (of("v2", "templates") || of("v3", "templates")):
		return true, ""
	case of("v2", "templates") && at(3) == "builds":
		return true, at(4)
	case of("templates") && at(2) == "builds":
		return true, at(3)
	case of("templates") && at(2) == "files", of("templates", "upload"):
		return true, ""
	}
	return false, ""
}

// builders orders the live hosts: first the one that runs a project's builds, then those that
// would if it were down.
func builders(hosts []bothy.ClusterHost, project string) (list []bothy.ClusterHost) {
	for _, h := range hosts {
		if h.State != bothy.HostDead && (h.Self || h.LeaseSeconds > 0) {
			list = append(list, h)
		}
	}
	weight := func(h bothy.ClusterHost) uint64 {
		sum := fnv.New64a()
		_, _ = sum.Write([]byte(project + "\x00" + h.Name))
		w := sum.Sum64() >> 1
		w ^= w >> 29
		w *= 0x9e3779b97f4a7c15
		if w >>= 1; h.State == bothy.HostUp {
			w |= 1 << 63
		}
		return w
	}
	slices.SortStableFunc(list, func(a, b bothy.ClusterHost) int {
		switch x, y := weight(a), weight(b); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return list
}

// toBuild forwards a request about builds to the host that runs those of the project, or to the
// one that knows the build.
func (x *Router) toBuild(w http.ResponseWriter, r *http.Request, t target, c Caller) bool {
	hosts, err := x.list(r.Context())
	if err != nil {
		x.o.Fail(w, r, err)
		return true
	}
	if t.buildID != "" && x.o.HasBuild != nil && x.o.HasBuild(t.buildID) {
		return false
	}
	again := replayable(r)
	for _, h := range builders(hosts, c.Owner) {
		if h.Self {
			if t.buildID == "" {
				return false
			}
			continue // this host does not know the build
		}
		err := x.send(w, r, t, c, store.Ownership{Host: h.Name, Address: h.Address}, false)
		if err == nil {
			return true
		}
		if !errors.Is(err, errAgain) || !again(r) {
			x.o.Fail(w, r, unanswered(h.Name, err))
			return true
		}
	}
	if t.buildID == "" || t.alone {
		return false // an agent is told by the tool
	}
	if err := LostBuild(t.buildID, hosts); err != nil {
		x.o.Fail(w, r, err)
		return true
	}
	return false
}

// LostBuild is the error of a build that no host knows which is there, where a host is lost that may
// have made it; nil where none is.
func LostBuild(id string, hosts []bothy.ClusterHost) error {
	var lost []string
	for _, h := range hosts {
		if !h.Self && (h.State == bothy.HostDead || h.LeaseSeconds <= 0) {
			lost = append(lost, h.Name)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	return bothy.Errorf(bothy.CodeNotFound, "no host knows the build %q; it may have run on a lost host: %s", id, strings.Join(lost, ", ")).
		WithHint("Start the build again, with the same request.")
}
