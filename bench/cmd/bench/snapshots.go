package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
)

func init() {
	programs["snapshots"] = program{about: "pause, resume, live snapshots, forks and rollback", runsc: true, run: snapshots}
	programs["growth"] = program{about: "the same for growing memory, as a plot", runsc: true, run: growth}
}

// forks is how many copies are made at once, and forkMost the memory in MB up to
// which that is done, for the sake of the host.
const (
	forks    = 10
	forkMost = 256
)

// wanted are the medians to reach, in milliseconds.
type wanted struct{ resume, freeze, fork, rollback float64 }

// snapshots measures a small sandbox, and one with 512 MB of memory.
func snapshots(ctx context.Context, l *lab.Lab, b *book, n int) error {
	s, r, err := rivals(ctx, l)
	if err != nil {
		return err
	}
	for _, size := range []struct {
		name string
		mb   int
		most wanted
	}{
		{"small", 0, wanted{45, 30, 500, 80}},
		{"512mb", 512, wanted{260, 160, 0, 0}},
	} {
		if err := frozen(ctx, l, s, r, b, orElse(n, 15), size.mb, "_"+size.name, size.most); err != nil {
			return err
		}
	}
	return steps(s, b)
}

func rivals(ctx context.Context, l *lab.Lab) (*lab.Server, *lab.Runsc, error) {
	s, err := l.Server(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	r, err := l.Runsc()
	if err != nil {
		return nil, nil, err
	}
	_, err = s.NewLog()
	return s, r, err
}

// frozen measures everything that can be done to a sandbox with so much memory. What has no
// target gets no bound.
func frozen(ctx context.Context, l *lab.Lab, s *lab.Server, r *lab.Runsc, b *book, n, mb int, suffix string, most wanted) error {
	h, end, err := s.Hold(ctx, mb)
	if err != nil {
		return err
	}
	defer end()
	c, err := l.Hold(ctx, r, mb)
	if err != nil {
		return err
	}
	restore, err := c.Restore()
	if err != nil {
		return err
	}
	back, err := c.Rollback()
	if err != nil {
		return err
	}
	to, err := h.Client.Snapshots.CreateSnapshot(ctx, h.ID, bothy.SnapshotCreate{Name: "then"})
	if err != nil {
		return err
	}
	for _, one := range []struct {
		measures []string
		most     float64
		subjects []bench.Subject
	}{
		{[]string{bench.LiveSnapshotFreeze, bench.LiveSnapshot, bench.QuietGap}, most.freeze, []bench.Subject{bench.TakeLive(h), c.Checkpoint()}},
		{[]string{bench.Resume, bench.Pause}, most.resume, []bench.Subject{bench.PauseAndResume(h), restore}},
		{[]string{bench.ForkOf(forks)}, most.fork, []bench.Subject{bench.ForkAll(h, forks), c.Fork(forks)}},
		{[]string{bench.Rollback}, most.rollback, []bench.Subject{bench.RollBack(h, to), back}},
	} {
		if one.measures[0] == bench.ForkOf(forks) && mb > forkMost {
			continue
		}
		from := len(b.Results)
		if err := b.run(ctx, bench.Case{N: n, Measures: bounded(one.measures, one.most), Subjects: one.subjects}); err != nil {
			return fmt.Errorf("%d MB: %w", mb, err)
		}
		for _, r := range b.Results[from:] {
			r.Name += suffix
		}
	}
	return nil
}

// bounded gives the first of the measures its bounds.
func bounded(names []string, most float64) []bench.Measure {
	var all []bench.Measure
	for _, name := range names {
		all = append(all, bench.Measure{Name: name, Unit: "ms"})
	}
	all[0].Bounds = []bench.Bound{{Against: "runsc", AtMost: 1}}
	if most > 0 {
		all[0].Bounds = append(all[0].Bounds, bench.Bound{AtMost: most})
	}
	return all
}

// sizes are the megabytes of memory for growth.
var sizes = []int{0, 64, 128, 256, 512}

// growth repeats everything with more and more memory, and plots it.
func growth(ctx context.Context, l *lab.Lab, b *book, n int) error {
	s, r, err := rivals(ctx, l)
	if err != nil {
		return err
	}
	for _, mb := range sizes {
		if err := frozen(ctx, l, s, r, b, orElse(n, 5), mb, fmt.Sprintf(".%d", mb), wanted{}); err != nil {
			return err
		}
	}
	b.plots = append(b.plots, draw(b, bench.Resume, "until a paused sandbox has answered"),
		draw(b, bench.LiveSnapshotFreeze, "a live snapshot freezes a program"),
		draw(b, bench.ForkOf(forks), fmt.Sprintf("until %d forks have answered", forks)),
		draw(b, bench.Rollback, "until a sandbox that was rolled back has answered"))
	return nil
}

// draw collects the medians of one measure.
func draw(b *book, measure, title string) bench.Plot {
	p := bench.Plot{Title: title, X: "MB of memory", Y: "ms"}
	var own, other bench.Line
	own.Name, other.Name = "bothy", "runsc"
	for _, mb := range sizes {
		i := slices.IndexFunc(b.Results, func(r *bench.Result) bool { return r.Name == fmt.Sprintf("%s.%d", measure, mb) })
		if i < 0 {
			continue
		}
		r := b.Results[i]
		own.Points = append(own.Points, bench.Point{X: float64(mb), Y: r.P50})
		if o := r.Against[other.Name]; o != nil {
			other.Points = append(other.Points, bench.Point{X: float64(mb), Y: o.P50})
		}
	}
	p.Lines = []bench.Line{own, other}
	return p
}
