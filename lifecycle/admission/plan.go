package admission

import (
	"context"
	"slices"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/bothy-dev/bothy"
)

// Plan returns what a project may use. Without plans there is no limit.
func (c *Controller) Plan(ctx context.Context, project string) (bothy.Plan, error) {
	if c.o.Plans == nil {
		return bothy.Plans[bothy.PlanUnlimited], nil
	}
	return c.o.Plans.Plan(ctx, project)
}

// Check returns an error if its project's plan does not allow a new sandbox.
func (c *Controller) Check(ctx context.Context, sb *bothy.Sandbox) error {
	p, err := c.Plan(ctx, sb.ProjectID)
	if err != nil {
		return err
	}
	for _, size := range []struct {
		what       string
		asked, max float64
	}{
		{"cpu", sb.CPU, p.CPU},
		{"memory_mb", float64(sb.MemoryMB), float64(p.MemoryMB)},
		{"disk_mb", float64(sb.DiskMB), float64(p.DiskMB)},
	} {
		if err := CheckSize(p, size.what, size.asked, size.max); err != nil {
			return err
		}
	}
	if err := checkTimeout(p, sb.TimeoutSeconds); err != nil {
		return err
	}
	return checkMode(p, sb.Network.Mode)
}

// CheckSize compares with a limit of a plan; 0 means no limit.
func CheckSize(p bothy.Plan, what string, asked, most float64) error {
	if most > 0 && asked > most {
		return overPlan(p, "%s may be up to %s, but %s was requested", what, number(most), number(asked))
	}
	return nil
}

// CheckChange checks the part of a change that a plan limits.
func (c *Controller) CheckChange(ctx context.Context, sb *bothy.Sandbox, u bothy.SandboxUpdate) error {
	if u.TimeoutSeconds == nil && u.Network == nil {
		return nil
	}
	p, err := c.Plan(ctx, sb.ProjectID)
	if err == nil && u.TimeoutSeconds != nil {
		err = checkTimeout(p, sb.TimeoutSeconds)
	}
	if err == nil && u.Network != nil {
		err = checkMode(p, sb.Network.Mode)
	}
	return err
}

func checkTimeout(p bothy.Plan, seconds int) error {
	switch {
	case p.TimeoutSeconds == 0:
		return nil
	case seconds == 0:
		return overPlan(p, "a sandbox must have a timeout of up to %d seconds", p.TimeoutSeconds)
	case seconds > p.TimeoutSeconds:
		return overPlan(p, "timeout_seconds may be up to %d, but %d was requested", p.TimeoutSeconds, seconds)
	}
	return nil
}

func checkMode(p bothy.Plan, m bothy.NetworkMode) error {
	if p.Networks == nil || slices.Contains(p.Networks, m) {
		return nil
	}
	return overPlan(p, "the network may be %v, but %s was requested", p.Networks, m)
}

// CheckRate counts a new sandbox, and returns an error if its project creates them too fast.
func (c *Controller) CheckRate(ctx context.Context, project string) error {
	p, err := c.Plan(ctx, project)
	if err != nil || p.CreatesPerMinute == 0 {
		return err
	}
	if c.o.Cluster.Shared() {
		return c.checkTooFast(project, p)
	}
	limit := rate.Limit(float64(p.CreatesPerMinute) / 60)
	c.mu.Lock()
	l := c.creates[project]
	if l == nil || l.Burst() != p.CreatesPerMinute {
		l = rate.NewLimiter(limit, p.CreatesPerMinute)
		c.creates[project] = l
	}
	c.mu.Unlock()
	if l.AllowN(c.o.Clock.Now(), 1) {
		return nil
	}
	return tooFast(p, time.Duration(float64(time.Second)/float64(limit)))
}

func tooFast(p bothy.Plan, wait time.Duration) error {
	e := bothy.Errorf(bothy.CodeRateLimited, "the plan %s allows %d new sandboxes per minute", p.Name, p.CreatesPerMinute).
		WithHint("Try again in a moment, or use a sandbox for more than one task.")
	e.RetryAfter = wait
	return e
}

// checkTooFast refuses new sandboxes for as long as the store would.
func (c *Controller) checkTooFast(project string, p bothy.Plan) error {
	now := c.o.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if wait := c.tooFast[project].Sub(now); wait > 0 {
		return tooFast(p, wait)
	}
	delete(c.tooFast, project)
	return nil
}

// PlanExceeded returns the error for a start that the store refused: live sandboxes run on all hosts
// or, if wait is set, the next may start after wait.
func (c *Controller) PlanExceeded(project string, p bothy.Plan, live int, wait time.Duration) error {
	if wait == 0 {
		return tooMany(p, live)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tooFast[project] = c.o.Clock.Now().Add(wait)
	return tooFast(p, wait)
}

func overPlan(p bothy.Plan, format string, args ...any) error {
	return bothy.Errorf(bothy.CodeQuota, "with the plan "+p.Name+" "+format, args...).
		WithHint("Request less, or ask the operator to change the project's plan: bothy project set.")
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// runningIn counts the running and starting sandboxes of a project. The caller holds c.mu.
func (c *Controller) runningIn(project string) int {
	n := c.startingIn[project]
	for _, p := range c.running {
		if p == project {
			n++
		}
	}
	return n
}

// elsewhere counts the sandboxes of a project on other hosts if its plan limits them.
func (c *Controller) elsewhere(ctx context.Context, project string, p bothy.Plan) (int, error) {
	if p.Sandboxes == nil {
		return 0, nil
	}
	return c.o.Cluster.LiveOf(ctx, project)
}

// checkCount returns an error if a project runs as many sandboxes as its plan allows. The
// caller holds c.mu.
func (c *Controller) checkCount(project string, p bothy.Plan, elsewhere int) error {
	if p.Sandboxes == nil {
		return nil
	}
	if n := c.runningIn(project) + elsewhere; n >= *p.Sandboxes {
		return tooMany(p, n)
	}
	return nil
}

func tooMany(p bothy.Plan, n int) error {
	return bothy.Errorf(bothy.CodeQuota, "the plan %s allows %d sandboxes at once, and %d are running", p.Name, *p.Sandboxes, n).
		WithHint("Terminate or pause one: bothy ls. Paused sandboxes do not count.")
}
