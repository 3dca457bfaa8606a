package build

import (
	"cmp"
	"context"
	"sync"

	"github.com/bothy-dev/bothy"
)

// marginSeconds is how much longer than a command its sandbox lives at least.
const marginSeconds = 60

// patience is the timeout of each command in seconds.
func (j *job) patience() int {
	if j.req.TimeoutSeconds > 0 {
		return j.req.TimeoutSeconds
	}
	return max(within(bothy.DefaultBuildTimeoutSeconds, j.plan.TimeoutSeconds-marginSeconds), 1)
}

// lifetime is the timeout of a sandbox for something that takes the given time, in seconds.
func (j *job) lifetime(seconds int) int {
	return max(within(seconds+graceSeconds, j.plan.TimeoutSeconds), seconds)
}

// within is the default, or what a plan allows if that is less.
func within(usual, allowed int) int {
	if allowed <= 0 {
		return usual
	}
	return min(usual, allowed)
}

// sandbox is the request for a sandbox of the build.
func (j *job) sandbox(template string, network bothy.Network, seconds int) bothy.SandboxCreate {
	return bothy.SandboxCreate{
		Template: template, Name: "build-" + j.id[len(j.id)-8:], Engine: j.req.Engine, CPU: j.req.CPU,
		MemoryMB: cmp.Or(j.req.MemoryMB, within(buildMemoryMB, j.plan.MemoryMB)), DiskMB: cmp.Or(j.req.DiskMB, within(buildDiskMB, j.plan.DiskMB)),
		Network: &network, TimeoutSeconds: &seconds, Metadata: map[string]string{metadataKey: j.id},
	}
}

// take waits until the build may have a sandbox; give returns it.
func (j *job) take(ctx context.Context) error {
	return j.b.turns.take(ctx, j.project, j.plan.Sandboxes)
}
func (j *job) give() { j.b.turns.give(j.project) }

// turns limits the sandboxes of a project's builds to what its plan allows: if that is few,
// parallel stages and builds take turns.
type turns struct {
	mu    sync.Mutex
	taken map[string]int
	freed chan struct{} // closed when one is given back
}

// take waits until a project's builds have fewer than most, if that is set.
func (t *turns) take(ctx context.Context, project string, most *int) error {
	for {
		t.mu.Lock()
		if t.freed == nil {
			t.taken, t.freed = map[string]int{}, make(chan struct{})
		}
		if most == nil || t.taken[project] < max(*most, 1) {
			t.taken[project]++
			t.mu.Unlock()
			return nil
		}
		freed := t.freed
		t.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (t *turns) give(project string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken[project]--; t.taken[project] == 0 {
		delete(t.taken, project)
	}
	close(t.freed)
	t.freed = make(chan struct{})
}
