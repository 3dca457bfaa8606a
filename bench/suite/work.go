package suite

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
	"github.com/bothy-dev/bothy/bench/work"
)

// Turns of work, and with --quick.
const workTurns, workQuick = 3, 1

var workJobs = makeWorkJobs()

func makeWorkJobs() (all []job) {
	for _, r := range work.Rows {
		all = append(all, job{names: []string{r.Name}, usual: workTurns, quick: workQuick, run: func(ctx context.Context, b *bed, n int) error {
			return b.work(ctx, r, n)
		}})
	}
	return all
}

// Fetch fetches the materials of the requested rows. It needs the host's network, so it comes
// before lab.Enter.
func (o Options) Fetch(ctx context.Context) error {
	var rows []work.Row
	for _, r := range work.Rows {
		if o.wants(job{names: []string{r.Name}}) {
			rows = append(rows, r)
		}
	}
	say := o.Say
	if say == nil {
		say = func(string) {}
	}
	return o.materials().Fetch(ctx, rows, say)
}

func (o Options) materials() *work.Materials {
	if o.Materials == "" {
		return &work.Materials{Cache: work.DefaultCache}
	}
	return &work.Materials{Cache: o.Materials}
}

// work makes every subject do the work of a row in turns. A row whose materials could not be
// fetched is reported as missing.
func (b *bed) work(ctx context.Context, r work.Row, n int) error {
	m := b.o.materials()
	if err := m.Lacks(r); err != nil {
		b.gone = append(b.gone, r.Name+": "+err.Error())
		return nil
	}
	sites, err := b.workplaces(ctx, r.Template)
	if err != nil {
		return err
	}
	scale := b.o.Scale
	if scale == 0 {
		scale = 1
	}
	var subjects []bench.Subject
	for _, s := range sites {
		subjects = append(subjects, s.Subject(r, m, scale))
	}
	return b.compare(ctx, n, []string{r.Name + ":" + r.Unit}, subjects...)
}

// workplaces are a sandbox and the rivals, with the files of a template. They are kept for the
// next row.
func (b *bed) workplaces(ctx context.Context, template string) ([]*work.Site, error) {
	if all := b.sites[template]; all != nil {
		return all, nil
	}
	t, err := b.cold(ctx)
	if err != nil {
		return nil, err
	}
	box, end, err := work.InSandbox(ctx, t, template)
	if err != nil {
		return nil, err
	}
	b.ends.Add(end)
	all := []*work.Site{work.NewSite("bothy", box)}
	for _, name := range slices.Sorted(maps.Keys(b.o.Builds)) {
		box, err := b.boxOf(ctx, b.o.Builds[name], template)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, work.NewSite(name, box))
	}
	size := lab.Work{Template: template, CPUs: work.CPUs, MemoryMB: work.MemoryMB}
	for _, rival := range []struct {
		name  string
		start func() (*lab.Worker, error)
	}{
		{"docker", func() (*lab.Worker, error) { return b.dockerWorker(ctx, size) }},
		{"runsc", func() (*lab.Worker, error) { return b.runscWorker(ctx, size) }},
		{"host", func() (*lab.Worker, error) { return b.lab.HostWorker(size) }},
	} {
		if !b.asked(rival.name) {
			continue
		}
		w, err := rival.start()
		if err != nil {
			b.without(rival.name, err)
			continue
		}
		all = append(all, work.NewSite(rival.name, w))
	}
	b.sites[template] = all
	return all, nil
}

func (b *bed) dockerWorker(ctx context.Context, w lab.Work) (*lab.Worker, error) {
	d, err := b.daemon(ctx)
	if err != nil {
		return nil, err
	}
	return d.Worker(ctx, b.lab, w, "")
}

// runscWorker is a container that Docker runs in runsc.
func (b *bed) runscWorker(ctx context.Context, w lab.Work) (*lab.Worker, error) {
	if b.runsc() == nil {
		return nil, &lab.Missing{What: "runsc", Why: b.absent["runsc"]}
	}
	d, err := b.daemon(ctx)
	if err != nil {
		return nil, &lab.Missing{What: "runsc", Why: "it is run by docker here: " + err.Error()}
	}
	return d.Worker(ctx, b.lab, w, lab.GVisorRuntime)
}

// boxOf is a sandbox of another build of Bothy.
func (b *bed) boxOf(ctx context.Context, program, template string) (work.Place, error) {
	if b.builds[program] == nil {
		s, err := b.lab.ServerWith(ctx, lab.ServerOptions{Settings: settings, Env: []string{"BOTHY_POOL=off"}, Program: program})
		if err != nil {
			return nil, err
		}
		b.builds[program] = s
	}
	box, end, err := work.InSandbox(ctx, b.builds[program].Target, template)
	if err == nil {
		b.ends.Add(end)
	}
	return box, err
}
