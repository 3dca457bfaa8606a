// Package suite is what `bothy bench` measures: cases with fixed names, each against the other
// programs that are requested and installed. Only cmd/bothy-bench and tests use it.
package suite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
)

// Rivals are what Bothy can be compared with.
var Rivals = []string{"docker", "runsc", "bwrap", "host"}

// Options say what is measured.
type Options struct {
	// Lab starts servers and rivals.
	Lab lab.Options
	// Target, if not nil, is a running server. Cases that need a server of their own are then
	// left out.
	Target *bench.Target
	// Only names the requested results, with * and ? as in file names; empty means all.
	Only []string
	// Against names rivals. Those that are not available are reported as missing.
	Against []string
	// N is the number of turns, 0 for the usual number. Quick takes few.
	N     int
	Quick bool
	// Sandboxes is how many live at once where that is measured, 0 for what memory allows.
	Sandboxes int
	// Builds are other builds of Bothy that do the work, too, by name.
	Builds map[string]string
	// Materials is the folder of what the work needs, work.DefaultCache if empty. Scale is the
	// amount of work, 1 or 0 for the usual.
	Materials string
	Scale     float64
	// Say, if not nil, is called with what comes next.
	Say func(string)
}

// A job makes one or more results.
type job struct {
	names []string
	// own is set if it needs a server of its own on this host.
	own          bool
	usual, quick int
	run          func(ctx context.Context, b *bed, n int) error
}

var jobs = slices.Concat(startJobs, useJobs, frozenJobs, densityJobs, crowdJobs, networkJobs, portJobs, buildJobs, workJobs)

// Names lists the results in the order in which they are measured.
func Names() (names []string) {
	for _, j := range jobs {
		names = append(names, j.names...)
	}
	return names
}

// Check refuses options that make no sense.
func (o Options) Check() error {
	for _, name := range o.Only {
		if !slices.ContainsFunc(Names(), Options{Only: []string{name}}.names) {
			return fmt.Errorf("there is no measure %q; there are: %s", name, strings.Join(Names(), " "))
		}
	}
	for _, name := range o.Against {
		if !slices.Contains(Rivals, name) {
			return fmt.Errorf("there is nothing to compare with called %q; there are: %s", name, strings.Join(Rivals, " "))
		}
	}
	if o.N < 0 || o.Sandboxes < 0 {
		return errors.New("a number of turns or sandboxes cannot be negative")
	}
	if o.Scale < 0 {
		return errors.New("the amount of work cannot be negative")
	}
	return nil
}

// Outcome is what was measured.
type Outcome struct {
	bench.Report
	Plots []bench.Plot
}

// Run measures, one job after the other. The outcome says what is missing; the error contains
// what failed, and the outcome is valid for the rest.
func Run(ctx context.Context, o Options) (*Outcome, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	b, err := newBed(o)
	if err != nil {
		return nil, err
	}
	defer b.close()
	out := &Outcome{Report: bench.Report{Host: bench.ThisHost(), Results: []*bench.Result{}}}
	var errs []error
	for _, j := range jobs {
		if !o.wants(j) {
			continue
		}
		if j.own && o.Target != nil {
			out.Missing = append(out.Missing, strings.Join(j.names, ", ")+": needs a server that bench starts itself")
			continue
		}
		if err := ctx.Err(); err != nil {
			return out, errors.Join(append(errs, err)...)
		}
		b.say("measuring " + strings.Join(j.names, ", "))
		b.results = nil
		if err := j.run(ctx, b, o.turns(j)); err != nil {
			err = fmt.Errorf("%s: %w", strings.Join(j.names, ", "), err)
			out.Missing = append(out.Missing, err.Error())
			errs = append(errs, err)
		}
		for _, r := range b.results {
			if slices.Contains(j.names, r.Name) && o.names(r.Name) {
				b.missingIn(r)
				out.Results = append(out.Results, r)
				out.Plots = append(out.Plots, draw(r))
			}
		}
	}
	out.Missing = append(out.Missing, b.missing()...)
	out.Host.Programs = b.versions
	return out, errors.Join(errs...)
}

func (o Options) wants(j job) bool { return slices.ContainsFunc(j.names, o.names) }

// names reports whether a result is requested.
func (o Options) names(result string) bool {
	return len(o.Only) == 0 || slices.ContainsFunc(o.Only, func(pattern string) bool {
		matched, err := path.Match(pattern, result)
		return err == nil && matched
	})
}

func (o Options) turns(j job) int {
	switch {
	case o.N > 0:
		return o.N
	case o.Quick:
		return j.quick
	}
	return j.usual
}

// draw shows the samples of a result from the smallest to the largest, so that medians and tails
// can be compared.
func draw(r *bench.Result) bench.Plot {
	p := bench.Plot{Title: r.Name, X: "% of the turns", Y: r.Unit}
	add := func(name string, samples []float64) {
		l := bench.Line{Name: name}
		sorted := slices.Sorted(slices.Values(samples))
		for i, v := range sorted {
			l.Points = append(l.Points, bench.Point{X: 100 * float64(i+1) / float64(len(sorted)), Y: v})
		}
		p.Lines = append(p.Lines, l)
	}
	add("bothy", r.Samples)
	for _, name := range Rivals {
		if s := r.Against[name]; s != nil {
			add(name, s.Samples)
		}
	}
	return p
}

// Write writes the raw samples and the plots into a folder, and returns the names of the files.
func (o *Outcome) Write(dir string) (written []string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	base := filepath.Join(dir, "bothy-bench-"+time.Now().Format("20060102-150405"))
	for _, f := range []struct {
		suffix string
		fill   func(io.Writer) error
	}{
		{".json", o.Report.Write},
		{".svg", func(w io.Writer) error { return bench.WritePlots(w, o.Plots) }},
		{".png", func(w io.Writer) error { return bench.WritePNG(w, o.Plots) }},
	} {
		if err := create(base+f.suffix, f.fill); err != nil {
			return written, err
		}
		written = append(written, base+f.suffix)
	}
	return written, nil
}

func create(path string, fill func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(fill(f), f.Close())
}
