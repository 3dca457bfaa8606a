package lifecycle

import (
	"context"
	"slices"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/bothy-dev/bothy"
)

// Plans knows what each project may use. It is asked by the service itself, so
// it checks no scope.
type Plans interface {
	Plan(ctx context.Context, projectID string) (bothy.Plan, error)
}

// plan returns what a project may use. Without plans everybody may use what the
// host has.
func (s *Service) plan(ctx context.Context, project string) (bothy.Plan, error) {
	if s.o.Plans == nil {
		return bothy.Plans[bothy.PlanUnlimited], nil
	}
	return s.o.Plans.Plan(ctx, project)
}

// admit checks that a new sandbox is within its project's plan.
func (s *Service) admit(ctx context.Context, sb *bothy.Sandbox) error {
	p, err := s.plan(ctx, sb.ProjectID)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		what       string
		asked, max float64
	}{
		{"cpu", sb.CPU, p.CPU},
		{"memory_mb", float64(sb.MemoryMB), float64(p.MemoryMB)},
		{"disk_mb", float64(sb.DiskMB), float64(p.DiskMB)},
	} {
		if err := checkSize(p, c.what, c.asked, c.max); err != nil {
			return err
		}
	}
	if err := checkTimeout(p, sb.TimeoutSeconds); err != nil {
		return err
	}
	if err := checkMode(p, sb.Network.Mode); err != nil {
		return err
	}
	if err := s.checkRoomToPause(ctx, sb); err != nil {
		return err
	}
	return s.checkRate(sb.ProjectID, p)
}

// checkSize compares with a bound of a plan, which has none where it is 0.
func checkSize(p bothy.Plan, what string, asked, most float64) error {
	if most > 0 && asked > most {
		return overPlan(p, "%s may be up to %s, and %s was asked for", what, number(most), number(asked))
	}
	return nil
}

// admitChange checks the part of a change that a plan bounds.
func (s *Service) admitChange(ctx context.Context, sb *bothy.Sandbox, u bothy.SandboxUpdate) error {
	if u.TimeoutSeconds == nil && u.Network == nil {
		return nil
	}
	p, err := s.plan(ctx, sb.ProjectID)
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
		return overPlan(p, "a sandbox must have a time-out, of up to %d seconds", p.TimeoutSeconds)
	case seconds > p.TimeoutSeconds:
		return overPlan(p, "timeout_seconds may be up to %d, and %d was asked for", p.TimeoutSeconds, seconds)
	}
	return nil
}

func checkMode(p bothy.Plan, m bothy.NetworkMode) error {
	if p.Networks == nil || slices.Contains(p.Networks, m) {
		return nil
	}
	return overPlan(p, "the network may be %v, and %s was asked for", p.Networks, m)
}

// checkRate counts one more new sandbox.
func (s *Service) checkRate(project string, p bothy.Plan) error {
	if p.CreatesPerMinute == 0 {
		return nil
	}
	limit := rate.Limit(float64(p.CreatesPerMinute) / 60)
	s.mu.Lock()
	l := s.creates[project]
	if l == nil || l.Burst() != p.CreatesPerMinute {
		l = rate.NewLimiter(limit, p.CreatesPerMinute)
		s.creates[project] = l
	}
	s.mu.Unlock()
	now := s.clock.Now()
	if l.AllowN(now, 1) {
		return nil
	}
	e := bothy.Errorf(bothy.CodeRateLimited, "the plan %s makes up to %d sandboxes a minute", p.Name, p.CreatesPerMinute).
		WithHint("Try again in a moment, or use a sandbox for more than one task.")
	e.RetryAfter = time.Duration(float64(time.Second) / float64(limit))
	return e
}

func overPlan(p bothy.Plan, format string, args ...any) error {
	return bothy.Errorf(bothy.CodeQuota, "with the plan "+p.Name+" "+format, args...).
		WithHint("Ask for less, or have the operator give the project another plan: bothy project set.")
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// runningIn counts the sandboxes of a project that run or are about to. The
// caller holds s.mu.
func (s *Service) runningIn(project string) int {
	n := s.startingIn[project]
	for _, l := range s.live {
		if l.project == project {
			n++
		}
	}
	for _, u := range s.unattached {
		if u.project == project {
			n++
		}
	}
	return n
}

// checkPlace refuses one more running sandbox to a project that has as many as
// it may. The caller holds s.mu.
func (s *Service) checkPlace(project string, p bothy.Plan) error {
	if p.Sandboxes == nil {
		return nil
	}
	if n := s.runningIn(project); n >= *p.Sandboxes {
		return bothy.Errorf(bothy.CodeQuota, "with the plan %s the project runs up to %d at once, and %d run", p.Name, *p.Sandboxes, n).
			WithHint("Terminate or pause one: bothy ls. Paused sandboxes do not count.")
	}
	return nil
}

// snapshotQuota is how many bytes a project's snapshots may take up; 0 means
// any number.
func (s *Service) snapshotQuota(ctx context.Context, project string) (int64, error) {
	p, err := s.plan(ctx, project)
	if err != nil {
		return 0, err
	}
	quota := s.o.Retention.ProjectBytes
	if p.SnapshotsMB != nil && (quota == 0 || *p.SnapshotsMB<<20 < quota) {
		quota = max(*p.SnapshotsMB<<20, 1) // where none are allowed, the first is
	}
	return quota, nil
}
