package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/bothy-dev/bothy"
)

// needs are what a sandbox wants of the host that takes it.
type needs struct {
	// project spreads its sandboxes over hosts that have as much to do.
	project string
	// template is the image that it starts from, as hosts tell of theirs; empty is unknown.
	template string
	// name is the template's.
	name string
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

// lacks reports whether a host has not, or not yet, the image that a sandbox starts from.
func (n *needs) lacks(h *bothy.ClusterHost) bool {
	return n.template != "" && len(h.Templates) > 0 && !slices.Contains(h.Templates, n.template)
}

// needsOf finds what a new sandbox wants, of what was asked for.
func (x *Router) needsOf(t target, c Caller) *needs {
	n := &needs{project: c.Owner}
	if x.o.Template != nil {
		n.name, n.template = x.o.Template(c.Owner, t.template)
	}
	return n
}

// spread counts a project's sandboxes on each host, as they were a moment ago.
type spread struct {
	at    time.Time
	count map[string]int
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
	fresh := ok && time.Since(s.at) < listFor(len(x.hosts))
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
	x.spreads[project] = spread{time.Now(), count}
	return count
}
