package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
	"github.com/bothy-dev/bothy/bench/work"
	"github.com/bothy-dev/bothy/internal/cleanup"
)

// bed is what the jobs measure with. It starts servers and rivals when the first job needs them.
type bed struct {
	o       Options
	lab     *lab.Lab
	results []*bench.Result

	bare, pooled *lab.Server
	dock         *lab.Docker
	run          *lab.Runsc
	wrap         *lab.Bwrap
	container    string // of docker, which idles
	host         *lab.Outside
	// sites are where work is done, by template, and ends how to end sandboxes there.
	sites map[string][]*work.Site
	ends  cleanup.Stack
	// builds are the servers of other builds, by program.
	builds map[string]*lab.Server
	// gone lists the results that cannot be measured here, and why.
	gone []string
	// absent says why a requested rival is not available.
	absent   map[string]string
	versions map[string]string
}

func newBed(o Options) (*bed, error) {
	b := &bed{o: o, sites: map[string][]*work.Site{}, builds: map[string]*lab.Server{}, absent: map[string]string{}, versions: map[string]string{}}
	if o.Target != nil {
		for _, name := range o.Against {
			b.absent[name] = "needs a server that bench starts itself"
		}
		return b, nil
	}
	var err error
	b.lab, err = lab.New(o.Lab)
	return b, err
}

func (b *bed) close() {
	b.ends.Run()
	if b.lab != nil {
		b.lab.Close()
	}
}

func (b *bed) say(text string) {
	if b.o.Say != nil {
		b.o.Say(text)
	}
}

// settings are those of every server here: room for many sandboxes, and access to the host
// outside.
const settings = lab.OutsideSettings + "sandboxes:\n  max: 10000\n"

// cold is a server that makes nothing in advance, or the one that already runs.
func (b *bed) cold(ctx context.Context) (bench.Target, error) {
	if b.o.Target != nil {
		return *b.o.Target, nil
	}
	s, err := b.server(ctx)
	if err != nil {
		return bench.Target{}, err
	}
	return s.Target, nil
}

func (b *bed) server(ctx context.Context) (s *lab.Server, err error) {
	if b.bare == nil {
		b.bare, err = b.lab.Server(ctx, settings, "BOTHY_POOL=off")
	}
	return b.bare, err
}

// warm is a server with a pool of the usual size, for the template.
func (b *bed) warm(ctx context.Context) (_ bench.Target, err error) {
	if b.o.Target != nil {
		return *b.o.Target, nil
	}
	if b.pooled == nil {
		pool := fmt.Sprintf("pool:\n  templates: [%s]\n", b.o.Lab.Template)
		if b.pooled, err = b.lab.Server(ctx, settings+pool); err != nil {
			return bench.Target{}, err
		}
	}
	return b.pooled.Target, nil
}

// asked reports whether a rival is requested and not known to be missing.
func (b *bed) asked(name string) bool {
	return slices.Contains(b.o.Against, name) && b.absent[name] == ""
}

// without records that a rival is missing.
func (b *bed) without(name string, err error) {
	b.absent[name] = err.Error()
	var m *lab.Missing
	if errors.As(err, &m) {
		b.absent[name] = m.Why
	}
}

// docker is nil if it was not requested or is not available. So are the others.
func (b *bed) docker(ctx context.Context) *lab.Docker {
	if !b.asked("docker") {
		return nil
	}
	d, err := b.daemon(ctx)
	if err != nil {
		b.without("docker", err)
	}
	return d
}

func (b *bed) daemon(ctx context.Context) (*lab.Docker, error) {
	if b.dock == nil {
		b.say("starting docker")
		d, err := b.lab.Docker(ctx)
		if err != nil {
			return nil, err
		}
		b.dock, b.versions["docker"] = d, d.Version+" "+d.Driver
	}
	return b.dock, nil
}

func (b *bed) runsc() *lab.Runsc {
	if b.run == nil && b.asked("runsc") {
		r, err := b.lab.Runsc()
		if err != nil {
			b.without("runsc", err)
			return nil
		}
		b.run, b.versions["runsc"] = r, r.Version()
	}
	return b.run
}

func (b *bed) bwrap() *lab.Bwrap {
	if b.wrap == nil && b.asked("bwrap") {
		w, err := b.lab.Bwrap()
		if err != nil {
			b.without("bwrap", err)
			return nil
		}
		b.wrap, b.versions["bwrap"] = w, w.Version()
	}
	return b.wrap
}

// starters are the rivals that start, run a command and end in one go.
func (b *bed) starters(ctx context.Context) (all []bench.Subject) {
	if d := b.docker(ctx); d != nil {
		all = append(all, d.RunOnce())
	}
	if r := b.runsc(); r != nil {
		all = append(all, r.RunOnce())
	}
	if w := b.bwrap(); w != nil {
		all = append(all, w.RunOnce())
	}
	return all
}

// compare takes turns. The measures are in milliseconds unless a unit is given after a colon.
func (b *bed) compare(ctx context.Context, n int, measures []string, subjects ...bench.Subject) error {
	c := bench.Case{N: n, Subjects: subjects}
	for _, m := range measures {
		name, unit, given := strings.Cut(m, ":")
		if !given {
			unit = "ms"
		}
		c.Measures = append(c.Measures, bench.Measure{Name: name, Unit: unit})
	}
	results, err := bench.Run(ctx, c)
	b.results = append(b.results, results...)
	return err
}

// missingIn lists what a result was not compared with although that was requested.
func (b *bed) missingIn(r *bench.Result) {
	for _, name := range b.o.Against {
		if r.Against[name] != nil {
			continue
		}
		why := b.absent[name]
		if why == "" {
			why = "has nothing like it"
		}
		r.Missing = append(r.Missing, name+": "+why)
	}
}

// missing lists the results that could not be measured, and the rivals that were not available
// at all.
func (b *bed) missing() (all []string) {
	all = append(all, b.gone...)
	for _, name := range b.o.Against {
		if why := b.absent[name]; why != "" {
			all = append(all, name+" is missing: "+why)
		}
	}
	return all
}
