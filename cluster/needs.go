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

// needs are what a sandbox requires of the host that takes it.
type needs struct {
	// project is used to spread its sandboxes over hosts with a similar load.
	project string
	// template is the image it starts from, as in bothy.HostFigures; "" is unknown.
	template string
	// name is the template's name, to look for a ready sandbox; "" if there can be none.
	name string
	// memory is the snapshot memory to restore, nil for none, and at the host that has its
	// files.
	memory *bothy.MemoryNeeds
	at     string
	// labels are the labels that the host must have.
	labels map[string]string
}

// Asked is what is known about the template in a request for a sandbox.
type Asked struct {
	// Name is the template's name, and Image its image as in bothy.HostFigures.
	Name, Image string
	// Memory is what its sandboxes restore, if anything, and Host has it; "" is any host.
	Memory *bothy.MemoryNeeds
	Host   string
}

// Wanted is what an existing sandbox requires of the host that takes it.
type Wanted struct {
	Project string
	// Memory is what restoring it requires; nil if any host will do.
	Memory *bothy.MemoryNeeds
	// AutoResume says that the sandbox resumes when it is used.
	AutoResume bool
	// Labels are the labels that its host must have.
	Labels map[string]string
}

// fits reports whether another host accepts sandboxes and meets these needs.
func (n *needs) fits(h *bothy.ClusterHost) bool { return takes(h) && n.can(h) }

// Fits reports whether a host can restore a sandbox and has its labels.
func Fits(h *bothy.ClusterHost, w *Wanted) bool {
	return (&needs{memory: w.Memory, labels: w.Labels}).can(h)
}

// can reports whether a host meets the needs, regardless of free capacity.
func (n *needs) can(h *bothy.ClusterHost) bool { return hasLabels(h, n.labels) && wakes(h, n.memory) }

// hasLabels reports whether a host has all of the labels.
func hasLabels(h *bothy.ClusterHost, labels map[string]string) bool {
	for key, value := range labels {
		if has, ok := h.Labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// labelsText formats labels as commands take them.
func labelsText(labels map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	return strings.Join(words, " ")
}

// checkLabels returns an error if no host has all of the labels. The operator's lists those that
// exist.
func checkLabels(labels map[string]string, hosts []bothy.ClusterHost, project string) error {
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
	if project != bothy.DefaultProject {
		return e.WithHint("Ask the operator which labels the hosts have, or omit host_labels.")
	}
	if len(by) == 0 {
		return e.WithHint("No host has labels: the operator sets them with cluster.labels. Omit host_labels.")
	}
	var there []string
	for _, label := range slices.Sorted(maps.Keys(by)) {
		there = append(there, fmt.Sprintf("%s (%s)", label, strings.Join(by[label], ", ")))
	}
	return e.WithHint("Give labels that one host has. The labels are %s.", strings.Join(there, ", "))
}

// noRoom is the error if no suitable host has room.
func noRoom(labels map[string]string) error {
	what := "no host has room for another sandbox"
	if len(labels) > 0 {
		what = "no host with the labels " + labelsText(labels) + " has room for another sandbox"
	}
	e := bothy.Errorf(bothy.CodeCapacity, "%s", what).WithHint("End some, or have the operator add a host, or uncordon one.")
	e.RetryAfter = 5 * time.Second
	return e
}

// What is added to the score of a host, in the terms of all of its memory.
const (
	// fetching is the penalty if the host must fetch the template's image first.
	fetching = 0.3
	// crowding limits the penalty for sandboxes of the same project on the host. One sandbox
	// costs half of it, more than nearby, so that a project's second sandbox goes to another
	// host.
	crowding = 0.25
	// busy is the penalty for each runnable thread per processor; busiest limits how many
	// count.
	busy, busiest = 0.2, 2.0
)

// lacks reports whether a host does not have what a sandbox starts from.
func (n *needs) lacks(h *bothy.ClusterHost) bool {
	if n.memory != nil && len(h.Builds) > 0 && !slices.Contains(h.Builds, n.memory.Build) {
		return true
	}
	return n.at != "" && n.at != h.Name || n.template != "" && len(h.Templates) > 0 && !slices.Contains(h.Templates, n.template)
}

// needsOf returns the needs of a new sandbox from its request.
func (x *Router) needsOf(ctx context.Context, t target, c Caller) *needs {
	n := &needs{project: c.Owner, labels: t.labels}
	if x.o.Template != nil {
		a := x.o.Template(ctx, c.Owner, t.template)
		n.name, n.template, n.memory, n.at = a.Name, a.Image, a.Memory, a.Host
	}
	return n
}

// spread caches the number of a project's sandboxes on each host.
type spread struct {
	at    time.Time
	count map[string]int
	total int
}

// freshFor is how long the cache is valid. Counting takes longer the more there are, and every
// host does it.
func (s *spread) freshFor(hosts int) time.Duration {
	return max(listFor(hosts), time.Duration(s.total)*time.Millisecond)
}

// maxSpread limits the number of projects in the cache.
const maxSpread = 1000

// spreadOf returns the number of a project's sandboxes on each host.
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
		return nil // place it by the other criteria
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
