package suite

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bothy-dev/bothy/bench"
)

var buildJobs = []job{
	{names: []string{bench.BuildClean, bench.BuildCached, bench.BuildLast}, own: true, usual: 5, quick: 1, run: build},
	{names: []string{bench.CreateServe}, own: true, usual: 20, quick: 3, run: createServed},
	{names: []string{bench.ImageImport}, own: true, usual: 3, quick: 1, run: importImage},
}

func build(ctx context.Context, b *bed, n int) error {
	t, err := b.warm(ctx)
	if err != nil {
		return err
	}
	if b.lab != nil { // a build would look for it in a registry
		if _, err := b.lab.Image(); err != nil {
			return err
		}
	}
	defer t.RemoveBuilt()
	subjects := []bench.Subject{t.Build()}
	if d := b.docker(ctx); d != nil {
		dir := filepath.Join(b.lab.Dir, "context")
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		theirs, err := d.Build(dir)
		if err != nil {
			return err
		}
		subjects = append(subjects, theirs)
	}
	return b.compare(ctx, n, []string{bench.BuildClean, bench.BuildCached, bench.BuildLast}, subjects...)
}

func importImage(ctx context.Context, b *bed, n int) error {
	t, err := b.warm(ctx)
	if err != nil {
		return err
	}
	file, size, err := b.lab.ImageFile()
	if err != nil {
		return err
	}
	b.say(fmt.Sprintf("the image has %d MB of files", size>>20))
	defer t.RemoveBuilt()
	subjects := []bench.Subject{t.Import(file)}
	if d := b.docker(ctx); d != nil {
		subjects = append(subjects, d.Load(file))
	}
	return b.compare(ctx, n, []string{bench.ImageImport}, subjects...)
}

func createServed(ctx context.Context, b *bed, n int) error {
	t, err := b.warm(ctx)
	if err != nil {
		return err
	}
	defer t.RemoveBuilt()
	if err := t.BuildServed(ctx); err != nil {
		return err
	}
	served, err := t.Served(ctx, b.pooled.Key)
	if err != nil {
		return err
	}
	return b.compare(ctx, n, []string{bench.CreateServe}, served)
}
