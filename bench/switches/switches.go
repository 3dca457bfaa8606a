// Package switches measures what each optimisation of the sentry gains: servers that have one of
// them switched off take turns with one that has them all. Only programs that measure use it.
package switches

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
	"github.com/bothy-dev/bothy/bench/work"
)

const (
	// All is the name of the servers that have every optimisation, and Control that of identical
	// ones: the difference between them is noise.
	All     = "all"
	Control = "control"
)

// A Variant is a server that differs in something.
type Variant struct {
	Name string
	// Env is added to the server's environment. Program is another build of it, if the
	// difference is in that.
	Env     []string
	Program string
}

// Options say how much is measured. 0 or nil means as usual.
type Options struct {
	// Turns is the number of starts; there are more of what is shorter, and fewer of what is
	// longer.
	Turns int
	// Idle is how many sandboxes are idle at the same time for each variant.
	Idle int
	// Rows are the work to do, and Scale the amount of it.
	Rows  []work.Row
	Scale float64
	// Parts are the names of what is measured, among those of Parts.
	Parts []string
	Say   func(string)
}

func (o Options) withDefaults() Options {
	if o.Turns == 0 {
		o.Turns = 12
	}
	if o.Idle == 0 {
		o.Idle = 10
	}
	if o.Scale == 0 {
		o.Scale = 0.2
	}
	if o.Rows == nil {
		o.Rows = Rows()
	}
	if o.Parts == nil {
		o.Parts = Parts()
	}
	if o.Say == nil {
		o.Say = func(string) {}
	}
	return o
}

// Rows are the work that says most about the kernel, and needs no materials.
func Rows() (some []work.Row) {
	for _, r := range work.Rows {
		if r.Template == work.Rows[0].Template && len(r.Needs) == 0 && r.Name != "work_git" {
			some = append(some, r)
		}
	}
	return some
}

// A bench of servers: one that makes nothing in advance and one with a pool, for each variant.
type contender struct {
	Variant
	cold, pooled *lab.Server
	anchor       string // a sandbox that stays
	site         *work.Site
	ids          []string
}

// Run measures the variants in turns with everything switched on. It returns what could be
// measured, and the first failure of each part.
func Run(ctx context.Context, l *lab.Lab, variants []Variant, o Options) ([]*bench.Result, error) {
	o = o.withDefaults()
	field := []*contender{{Variant: Variant{Name: All}}}
	for _, v := range variants {
		field = append(field, &contender{Variant: v})
	}
	for _, c := range field {
		o.Say("starting servers: " + c.Name)
		if err := c.start(ctx, l); err != nil {
			return nil, fmt.Errorf("start %s: %w", c.Name, err)
		}
	}
	var all []*bench.Result
	var failed error
	for _, p := range parts {
		if !slices.Contains(o.Parts, p.name) {
			continue
		}
		o.Say("measuring " + p.about)
		results, err := p.run(ctx, field, o)
		all, failed = append(all, results...), errors.Join(failed, err)
	}
	return all, failed
}

// start starts the two servers, and their permanent sandboxes.
func (c *contender) start(ctx context.Context, l *lab.Lab) (err error) {
	o := lab.ServerOptions{Program: c.Program}
	o.Settings, o.Env = "sandboxes:\n  max: 10000\n", append([]string{"BOTHY_POOL=off"}, c.Env...)
	if c.cold, err = l.ServerWith(ctx, o); err != nil {
		return err
	}
	o.Settings += fmt.Sprintf("pool:\n  templates: [%s]\n  ready: 1\n  ready_max: 1\n  spares: 1\n", l.Template)
	o.Env = c.Env
	if c.pooled, err = l.ServerWith(ctx, o); err != nil {
		return err
	}
	sb, _, err := c.cold.Create(ctx, bothy.SandboxCreate{})
	if err == nil {
		c.anchor = sb.ID
	}
	return err
}

// each makes every contender take turns.
func each(ctx context.Context, field []*contender, n int, measures string, subject func(*contender) bench.Subject) ([]*bench.Result, error) {
	c := bench.Case{N: n}
	for _, m := range strings.Fields(measures) {
		name, unit, _ := strings.Cut(m, ":")
		c.Measures = append(c.Measures, bench.Measure{Name: name, Unit: unit})
	}
	for _, one := range field {
		s := subject(one)
		s.Name = one.Name
		c.Subjects = append(c.Subjects, s)
	}
	return bench.Run(ctx, c)
}

// gather makes a result from samples that were not taken in turns, by contender.
func gather(name, unit string, field []*contender, samples [][]float64) *bench.Result {
	var names []string
	series := map[string]*bench.Series{}
	for i, c := range field {
		names = append(names, c.Name)
		series[c.Name] = &bench.Series{N: len(samples[i]), OK: len(samples[i]), Samples: samples[i]}
	}
	now := bench.Load()
	return bench.Compare(bench.Measure{Name: name, Unit: unit}, names, series, now, now)
}
