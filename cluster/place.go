package cluster

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// watchedBody records whether any of a body was read. If its length is known it returns EOF by
// itself: the sender reads once more after the last byte, and the server of the request may
// have closed the body by then.
type watchedBody struct {
	io.ReadCloser
	began atomic.Bool
	left  int64 // negative if unknown
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.began.Store(true)
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	if b.left > 0 {
		b.left -= min(int64(n), b.left)
	}
	return n, err
}

// candidates is how many other hosts are compared for a new sandbox. A few random ones suffice
// for an even load; if all were compared, every host would choose the same one. The rest are
// asked only if these refuse.
const candidates = 3

// nearby is how much more loaded this host may be than another and still take a sandbox:
// forwarding costs time.
const nearby = 0.1

// place chooses a host for a new sandbox: this one if it has a ready one or no other is better,
// then the others. The next host is asked only if the last refused before doing anything.
func (x *Router) place(w http.ResponseWriter, r *http.Request, t target, c Caller) bool {
	hosts, err := x.list(r.Context())
	if err != nil {
		x.o.Fail(w, r, err)
		return true
	}
	return x.placeBy(w, r, t, c, hosts, x.needsOf(r.Context(), t, c))
}

// placeBy is place for given needs.
func (x *Router) placeBy(w http.ResponseWriter, r *http.Request, t target, c Caller, hosts []bothy.ClusterHost, n *needs) bool {
	if err := checkLabels(n.labels, hosts, c.Owner); err != nil {
		x.o.Fail(w, r, err)
		return true
	}
	hosts = x.withProcessors(r.Context(), hosts, n)
	here, others := x.plan(r.Context(), hosts, n)
	if here && (len(others) == 0 || x.o.Tight == nil || !x.o.Tight(max(1, int(x.creating.Load())))) {
		return false
	}
	if here {
		// Its last room may be gone before the request is admitted. So it is asked as the others are,
		// and may refuse instead of having the request wait.
		own := slices.IndexFunc(hosts, func(h bothy.ClusterHost) bool { return h.Self })
		others = append([]bothy.ClusterHost{hosts[own]}, others...)
	}
	again := replayable(r)
	var unknown *refusal // of a template, by each host that was asked
	asked := false
	for h := range inTurn(others, hosts, n) {
		if err := r.Context().Err(); err != nil {
			x.o.Fail(w, r, err)
			return true
		}
		if !h.Self {
			x.count(h.Name, n)
		}
		err := x.send(w, r, t, c, store.Ownership{Host: h.Name, Address: h.Address}, true)
		if err == nil {
			return true
		}
		if !errors.Is(err, errAgain) || !again(r) {
			x.o.Fail(w, r, unanswered(h.Name, err))
			return true
		}
		var no *refusal
		if !errors.As(err, &no) || no.said.Code != bothy.CodeTemplateNotFound {
			no = nil
		}
		if !asked || unknown != nil {
			unknown = no
		}
		asked = true
	}
	if x.cordoned(hosts) || slices.ContainsFunc(hosts, func(h bothy.ClusterHost) bool { return h.Self && !hasLabels(&h, n.labels) }) {
		if unknown != nil {
			x.o.Fail(w, r, unknown.said)
			return true
		}
		x.o.Fail(w, r, noRoom(n.labels))
		return true
	}
	return false // it queues here; admission reports the error if it gets no room
}

// inTurn yields the chosen hosts, and if all of them refuse, the rest that might take the
// sandbox. Those that had no room when they last renewed their lease come last.
func inTurn(chosen, hosts []bothy.ClusterHost, n *needs) iter.Seq[bothy.ClusterHost] {
	return func(yield func(bothy.ClusterHost) bool) {
		asked := map[string]bool{}
		for _, h := range chosen {
			asked[h.Name] = true
			if !yield(h) {
				return
			}
		}
		order := rand.Perm(len(hosts))
		for _, full := range []bool{false, true} {
			for _, i := range order {
				h := &hosts[i]
				if h.Self || asked[h.Name] || !open(h) || full == takes(h) || !n.can(h) {
					continue
				}
				if !yield(*h) {
					return
				}
			}
		}
	}
}

// plan decides whether this host takes a new sandbox at once, and otherwise which others to
// ask, best first.
func (x *Router) plan(ctx context.Context, hosts []bothy.ClusterHost, n *needs) (here bool, others []bothy.ClusterHost) {
	self, others := x.choose(ctx, hosts, n)
	if !self {
		return false, others
	}
	if len(others) == 0 || n.name != "" && x.o.Ready(n.name) {
		return true, others
	}
	own := slices.IndexFunc(hosts, func(h bothy.ClusterHost) bool { return h.Self })
	score := x.scores(ctx, n)
	if here = score(&hosts[own]) <= score(&others[0])+nearby; here {
		x.count(hosts[own].Name, n)
	}
	return here, others
}

// choose decides whether this host may take a new sandbox, and which others to ask, best first.
func (x *Router) choose(ctx context.Context, hosts []bothy.ClusterHost, n *needs) (self bool, others []bothy.ClusterHost) {
	var fit []int
	for i := range hosts {
		switch h := &hosts[i]; {
		case h.Self:
			self = h.State == bothy.HostUp && !x.o.Full() && n.can(h)
		case n.fits(h):
			fit = append(fit, i)
		}
	}
	rand.Shuffle(len(fit), func(i, j int) { fit[i], fit[j] = fit[j], fit[i] })
	// If few of many hosts have the image, always include one of them.
	if len(fit) > candidates {
		if has := slices.IndexFunc(fit, func(i int) bool { return !n.lacks(&hosts[i]) }); has > 0 {
			fit[0], fit[has] = fit[has], fit[0]
		}
		fit = fit[:candidates]
	}
	for _, i := range fit {
		others = append(others, hosts[i])
	}
	x.sort(ctx, others, n)
	return self, others
}

// sort sorts hosts, best first.
func (x *Router) sort(ctx context.Context, hosts []bothy.ClusterHost, n *needs) {
	score := x.scores(ctx, n)
	slices.SortStableFunc(hosts, func(a, b bothy.ClusterHost) int { return cmp.Compare(score(&a), score(&b)) })
}

// open reports whether another host accepts sandboxes if it has room.
func open(h *bothy.ClusterHost) bool { return h.State == bothy.HostUp && h.LeaseSeconds > 0 }

// takes reports whether another host accepts sandboxes, as of its last renewal.
func takes(h *bothy.ClusterHost) bool {
	return open(h) && (h.MaxSandboxes == 0 || h.Live < h.MaxSandboxes)
}

// scores returns a function that rates hosts for a sandbox: lower is better.
func (x *Router) scores(ctx context.Context, n *needs) func(h *bothy.ClusterHost) float64 {
	projects := x.spreadOf(ctx, n.project)
	return func(h *bothy.ClusterHost) float64 {
		x.mu.Lock()
		placed, of := x.placed[h.Name], x.placed[ofProject(h.Name, n.project)]
		x.mu.Unlock()
		used := 0.0
		if h.MemoryBytes > 0 {
			used = 1 - float64(h.FreeMemoryBytes)/float64(h.MemoryBytes)
		}
		score := used + float64(h.Live+placed)/float64(16*max(1, h.CPUs)) + busy*min(max(0, h.Load), busiest)
		if projects != nil {
			mine := float64(projects[h.Name] + of)
			score += crowding * mine / (mine + 1)
		}
		if n.lacks(h) {
			score += fetching
		}
		return score
	}
}

// ofProject is the key in placed for a project's sandboxes on a host.
func ofProject(host, project string) string { return host + " " + project }

// count records a sandbox for a host whose figures do not include it yet.
func (x *Router) count(host string, n *needs) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.placed[host]++
	if n.project != "" {
		x.placed[ofProject(host, n.project)]++
	}
}

// listFor is how long the list of hosts is valid. Each host reads the list of all, so with a
// fixed time the total would grow with the square of their number; this way it grows linearly.
func listFor(hosts int) time.Duration { return max(hostsFor, time.Duration(hosts)*hostsFor/100) }

// list returns the hosts, from a short-lived cache.
func (x *Router) list(ctx context.Context) ([]bothy.ClusterHost, error) {
	x.mu.Lock()
	hosts, fresh := x.hosts, time.Since(x.asked) < listFor(len(x.hosts))
	x.mu.Unlock()
	if fresh {
		return hosts, nil
	}
	hosts, err := x.o.Hosts.Peers(ctx)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.hosts, x.asked = hosts, time.Now()
	clear(x.placed)
	return hosts, nil
}

func (x *Router) cordoned(hosts []bothy.ClusterHost) bool {
	return slices.ContainsFunc(hosts, func(h bothy.ClusterHost) bool { return h.Self && h.State != bothy.HostUp })
}

// mayTake reports whether this host may take a sandbox that has no host.
func (x *Router) mayTake() bool {
	hosts, err := x.list(context.Background())
	return err == nil && x.o.Keeper.Live() && !x.cordoned(hosts) && !x.o.Full()
}

// other returns another host for a sandbox without one. ok is false if this host should take
// it.
func (x *Router) other(ctx context.Context, id string) (h bothy.ClusterHost, ok bool, err error) {
	hosts, err := x.list(ctx)
	if err != nil {
		return h, false, nil
	}
	n := x.needsOfSandbox(ctx, id)
	self, others := x.choose(ctx, x.withProcessors(ctx, hosts, n), n)
	switch {
	case self && x.o.Keeper.Live():
		return h, false, nil
	case len(others) > 0:
		return others[0], true, nil
	case slices.ContainsFunc(hosts, func(h bothy.ClusterHost) bool { return h.Self && !hasLabels(&h, n.labels) }):
		return h, false, noRoom(n.labels)
	}
	return h, false, nil
}

// needsOfSandbox returns the needs of an existing sandbox, as far as they are known.
func (x *Router) needsOfSandbox(ctx context.Context, id string) *needs {
	n := &needs{}
	if x.o.Wanted == nil {
		return n
	}
	if w, err := x.o.Wanted(ctx, id); err == nil {
		n.project, n.memory, n.labels = w.Project, w.Memory, w.Labels
	}
	return n
}

// withProcessors adds the hosts' processors if they matter. They are as large as the rest of
// the list, and change only when a host starts, so they are cached separately.
func (x *Router) withProcessors(ctx context.Context, hosts []bothy.ClusterHost, n *needs) []bothy.ClusterHost {
	if n.memory == nil || n.memory.Processor == nil {
		return hosts
	}
	x.mu.Lock()
	known := x.processors
	x.mu.Unlock()
	if slices.ContainsFunc(hosts, func(h bothy.ClusterHost) bool { _, ok := known[h.Epoch]; return !ok }) {
		all, err := x.o.Hosts.Hosts(ctx)
		if err != nil {
			return hosts // each host decides for itself
		}
		known = map[int64]*bothy.HostProcessor{}
		for _, h := range all {
			known[h.Epoch] = h.Processor
		}
		x.mu.Lock()
		x.processors = known
		x.mu.Unlock()
	}
	hosts = slices.Clone(hosts)
	for i := range hosts {
		hosts[i].Processor = known[hosts[i].Epoch]
	}
	return hosts
}
