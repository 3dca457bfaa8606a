package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

// needs are what a sandbox wants of the host that takes it.
type needs struct {
	// project spreads its sandboxes over hosts that have as much to do.
	project string
	// template is the image that it starts from, as hosts tell of theirs; empty is unknown.
	template string
	// name is the template's, of which one may be ready; empty where none can be.
	name string
	// memory is what it wakes, if anything, and at the host that has that; empty is none.
	memory *bothy.MemoryNeeds
	at     string
	// labels are those that the host has to have, all of them.
	labels map[string]string
}

// Asked is what is known of the template that a sandbox is asked of.
type Asked struct {
	// Name is the template's, and Image its in the words of bothy.HostFigures.
	Name, Image string
	// Memory is what its sandboxes wake, if anything, and Host has that; empty is any.
	Memory *bothy.MemoryNeeds
	Host   string
}

// Wanted is what a sandbox that there is wants of the host that takes it.
type Wanted struct {
	Project string
	// Memory is what it sleeps in, or would; nil is nothing that a host may lack.
	Memory *bothy.MemoryNeeds
	// AutoResume says that it wakes when it is used.
	AutoResume bool
	// Labels are those that its host has to have.
	Labels map[string]string
}

// fits reports whether another host may be asked to take what has these needs.
func (n *needs) fits(h *bothy.ClusterHost) bool { return takes(h) && n.can(h) }

// Fits reports whether a host can wake a sandbox, and is one that it may run on.
func Fits(h *bothy.ClusterHost, w *Wanted) bool {
	return (&needs{memory: w.Memory, labels: w.Labels}).can(h)
}

// can reports whether a host could have it, had it room.
func (n *needs) can(h *bothy.ClusterHost) bool { return hasLabels(h, n.labels) && wakes(h, n.memory) }

// hasLabels reports whether a host has all of some labels.
func hasLabels(h *bothy.ClusterHost, labels map[string]string) bool {
	for key, value := range labels {
		if has, ok := h.Labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// labelsText writes labels as they are given to commands.
func labelsText(labels map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	return strings.Join(words, " ")
}

// checkLabels refuses labels that no host has, and says which there are.
func checkLabels(labels map[string]string, hosts []bothy.ClusterHost) error {
	by := map[string][]string{}
	for i := range hosts {
		h := &hosts[i]
		if h.State == bothy.HostDead {
			continue
		}
		if hasLabels(h, labels) {
			return nil
		}
		for key, value := range h.Labels {
			by[key+"="+value] = append(by[key+"="+value], h.Name)
		}
	}
	e := bothy.Errorf(bothy.CodeInvalid, "no host of the cluster has the labels %s", labelsText(labels))
	if len(by) == 0 {
		return e.WithHint("No host has any: the operator sets cluster.labels of each. Leave host_labels out.")
	}
	var there []string
	for _, label := range slices.Sorted(maps.Keys(by)) {
		there = append(there, fmt.Sprintf("%s (%s)", label, strings.Join(by[label], ", ")))
	}
	return e.WithHint("Give labels that are all of one host. There are %s.", strings.Join(there, ", "))
}

// noRoom says that no host that may take a sandbox does.
func noRoom(labels map[string]string) error {
	what := "no host has room for another sandbox"
	if len(labels) > 0 {
		what = "no host with the labels " + labelsText(labels) + " has room for another sandbox"
	}
	e := bothy.Errorf(bothy.CodeCapacity, "%s", what).WithHint("End some, or have the operator add a host.")
	e.RetryAfter = 5 * time.Second
	return e
}

// What is added to the score of a host, in the terms of all of its memory.
const (
	// fetching is what it is worth that a host has the image of a template already.
	fetching = 0.3
	// crowding bounds what it is worth that a host has none of the project's sandboxes yet. With
	// one, half of it is more than nearby, so that the second goes to another host.
	crowding = 0.25
	// busy is what a thread is worth that wants a processor, for each processor, and busiest
	// bounds how many count.
	busy, busiest = 0.2, 2.0
)

// lacks reports whether a host has not, or not yet, what a sandbox starts from.
func (n *needs) lacks(h *bothy.ClusterHost) bool {
	if n.memory != nil && len(h.Builds) > 0 && !slices.Contains(h.Builds, n.memory.Build) {
		return true
	}
	return n.at != "" && n.at != h.Name || n.template != "" && len(h.Templates) > 0 && !slices.Contains(h.Templates, n.template)
}

// needsOf finds what a new sandbox wants, of what was asked for.
func (x *Router) needsOf(ctx context.Context, t target, c Caller) *needs {
	n := &needs{project: c.Owner, labels: t.labels}
	if x.o.Template != nil {
		a := x.o.Template(ctx, c.Owner, t.template)
		n.name, n.template, n.memory, n.at = a.Name, a.Image, a.Memory, a.Host
	}
	return n
}

// spread counts a project's sandboxes on each host, as they were a moment ago.
type spread struct {
	at    time.Time
	count map[string]int
	total int
}

// freshFor is how old it may be. To count takes as long as there are many, and each host does.
func (s *spread) freshFor(hosts int) time.Duration {
	return max(listFor(hosts), time.Duration(s.total)*time.Millisecond)
}

// maxSpread is of how many projects that is known at once.
const maxSpread = 1000

// spreadOf counts a project's sandboxes on each host.
func (x *Router) spreadOf(ctx context.Context, project string) map[string]int {
	if x.o.Spread == nil || project == "" {
		return nil
	}
	x.mu.Lock()
	s, ok := x.spreads[project]
	fresh := ok && time.Since(s.at) < s.freshFor(len(x.hosts))
	x.mu.Unlock()
	if fresh {
		return s.count
	}
	count, err := x.o.Spread(ctx, project)
	if err != nil {
		return nil // it is placed by what else is known
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.spreads) >= maxSpread {
		clear(x.spreads)
	}
	s = spread{at: time.Now(), count: count}
	for _, n := range count {
		s.total += n
	}
	x.spreads[project] = s
	return count
}
