package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// atOnce is how many suites run at once, unless one runs alone.
const atOnce = 2

// outcome is what became of a suite.
type outcome struct {
	suite
	err  error
	took time.Duration
	// busyPercent is how much of the host's processors was used meanwhile.
	busyPercent float64
}

// runAll runs suites in their order, as many at once as may be, and reports each when it has ended. What needs
// one that failed is not run, and reported with an error. When ctx ends no other begins.
func runAll(ctx context.Context, chosen []suite, run func(context.Context, suite) error, report func(outcome)) {
	ended := make(chan outcome)
	waiting := slices.Clone(chosen)
	passed, running := map[string]bool{}, map[string]bool{}
	alone := false
	open := func(name string) bool { // whether it is still to come to its end
		return running[name] || slices.ContainsFunc(waiting, func(s suite) bool { return s.name == name })
	}
	for len(waiting) > 0 || len(running) > 0 {
		for i := 0; i < len(waiting) && len(running) < atOnce && !alone; i++ {
			s := waiting[i]
			lacks := slices.ContainsFunc(s.needs, func(n string) bool { return !passed[n] })
			switch {
			case ctx.Err() != nil:
				report(outcome{suite: s, err: context.Cause(ctx)})
			case lacks && slices.ContainsFunc(s.needs, open):
				continue
			case lacks:
				report(outcome{suite: s, err: fmt.Errorf("not run, as it needs %v", s.needs)})
			case s.alone && len(running) > 0:
				continue
			default:
				alone, running[s.name] = s.alone, true
				go func() {
					ended <- measure(ctx, s, run)
				}()
			}
			waiting = slices.Delete(waiting, i, i+1)
			i--
		}
		if len(running) == 0 {
			continue
		}
		o := <-ended
		delete(running, o.name)
		passed[o.name], alone = o.err == nil, false
		report(o)
	}
}

func measure(ctx context.Context, s suite, run func(context.Context, suite) error) outcome {
	begun := time.Now()
	before, err := readProcessors()
	if err != nil {
		return outcome{suite: s, err: err}
	}
	err = run(ctx, s)
	o := outcome{suite: s, err: err, took: time.Since(begun)}
	after, err := readProcessors()
	o.err, o.busyPercent = cmp.Or(o.err, err), after.busySince(before)
	return o
}
