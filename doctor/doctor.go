// Package doctor finds out whether a host can run sandboxes, and says in one sentence for each
// finding what to do. It tries things rather than reading settings: it makes a tap and a cgroup,
// and starts a sandbox. The command line and the server use it; engines are passed as functions
// that start a sandbox.
package doctor

import (
	"context"
	"time"
)

// Status is the outcome of a check.
type Status string

// The outcomes. A warning limits Bothy, a failure prevents it from working.
const (
	OK   Status = "ok"
	Warn Status = "warn"
	Fail Status = "fail"
)

// Result is what one check found.
type Result struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	// Detail is a sentence that says what was found.
	Detail string `json:"detail"`
	// Fix is a sentence that says what to do about it.
	Fix        string `json:"fix,omitempty"`
	DurationMS int64  `json:"duration_ms"`
}

// Check is one thing to find out.
type Check struct {
	Name string
	Run  func(ctx context.Context) Result
}

// Report is all results.
type Report struct {
	OK      bool     `json:"ok"`
	Results []Result `json:"results"`
}

// StartProbe starts a real sandbox on one engine and ends it again.
type StartProbe struct {
	Engine string
	Start  func(ctx context.Context) (Started, error)
	// Optional marks an engine that a host can do without: if it is not installed, that is only
	// a warning.
	Optional bool
}

// Started is the result of a probe.
type Started struct {
	// Took is how long the start took.
	Took time.Duration
	// Detail, if not empty, is a sentence about what the sandbox ran on.
	Detail string
	// Slow, if not empty, says how to make it faster. It makes the outcome a warning.
	Slow string
}

// Host is what is examined. Use NewHost; tests replace its parts.
type Host struct {
	// Home is where the server keeps its state, and Templates its templates.
	Home      string
	Templates string
	// Listen is the server's address.
	Listen string
	// Probes start sandboxes.
	Probes []StartProbe
	// Orphans lists machines that run without a server and whose folder is gone; nil disables
	// the check.
	Orphans func() ([]string, error)

	proc, cgroups string
	euid          int
	kernel        func() string
	lookPath      func(name string) (string, error)
	now           func() time.Time
}

// Run runs checks in order and calls each for every result.
func Run(ctx context.Context, checks []Check, each func(Result)) Report {
	report := Report{OK: true}
	for _, c := range checks {
		start := time.Now()
		r := c.Run(ctx)
		r.Name, r.DurationMS = c.Name, time.Since(start).Milliseconds()
		report.OK = report.OK && r.Status != Fail
		report.Results = append(report.Results, r)
		each(r)
	}
	return report
}

// Checks lists all checks, the quick ones first.
func (h *Host) Checks() []Check {
	checks := append(h.RunningChecks(), Check{"port", h.checkPort})
	for _, p := range h.Probes {
		checks = append(checks, Check{"engine " + p.Engine, p.check})
	}
	return checks
}

// RunningChecks lists the checks that a server runs while it serves. They start no sandbox.
func (h *Host) RunningChecks() []Check {
	return append(h.Requirements(),
		Check{"memory", h.checkMemory},
		Check{"clock", h.checkClock},
		Check{"templates", h.checkTemplates},
		Check{"orphans", h.checkOrphans},
	)
}

// StartChecks lists the checks that must pass before a server can be started.
func (h *Host) StartChecks() []Check {
	return append(h.Requirements(), Check{"port", h.checkPort})
}

// Requirements lists what must be true before a server can be started.
func (h *Host) Requirements() []Check {
	return []Check{
		{"root", h.checkRoot},
		{"kernel", h.checkKernel},
		{"user namespaces", h.checkUserNamespaces},
		{"tap", h.checkTap},
		{"tracing", h.checkTracing},
		{"cgroups", h.checkCgroups},
		{"tools", h.checkTools},
		{"disk", h.checkDisk},
	}
}

func ok(detail string) Result        { return Result{Status: OK, Detail: detail} }
func warn(detail, fix string) Result { return Result{Status: Warn, Detail: detail, Fix: fix} }
func fail(detail, fix string) Result { return Result{Status: Fail, Detail: detail, Fix: fix} }
