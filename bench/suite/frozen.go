package suite

import (
	"context"
	"fmt"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
)

// forks is how many copies are made at once.
const forks = 10

var frozenJobs = []job{
	frozenJob("resume_small", bench.Resume, 0, 15, 3, func(_ context.Context, h *bench.Held) (bench.Subject, error) {
		return bench.PauseAndResume(h), nil
	}, (*lab.Container).Restore),
	frozenJob("resume_512mb", bench.Resume, 512, 5, 2, func(_ context.Context, h *bench.Held) (bench.Subject, error) {
		return bench.PauseAndResume(h), nil
	}, (*lab.Container).Restore),
	frozenJob("live_snapshot_small", bench.LiveSnapshotFreeze, 0, 15, 3, func(_ context.Context, h *bench.Held) (bench.Subject, error) {
		return bench.TakeLive(h), nil
	}, func(c *lab.Container) (bench.Subject, error) { return c.Checkpoint(), nil }),
	frozenJob(bench.ForkOf(forks), bench.ForkOf(forks), 0, 5, 2, func(_ context.Context, h *bench.Held) (bench.Subject, error) {
		return bench.ForkAll(h, forks), nil
	}, func(c *lab.Container) (bench.Subject, error) { return c.Fork(forks), nil }),
	frozenJob(bench.Rollback, bench.Rollback, 0, 15, 3, func(ctx context.Context, h *bench.Held) (bench.Subject, error) {
		to, err := h.Client.Snapshots.CreateSnapshot(ctx, h.ID, bothy.SnapshotCreate{Name: "then"})
		return bench.RollBack(h, to), err
	}, (*lab.Container).Rollback),
}

// frozenJob measures snapshots and copies of a sandbox whose program holds so many MB, and of a
// container of runsc with the same program.
func frozenJob(name, measure string, mb, usual, quick int,
	ours func(context.Context, *bench.Held) (bench.Subject, error), theirs func(*lab.Container) (bench.Subject, error)) job {
	return job{names: []string{name}, usual: usual, quick: quick, run: func(ctx context.Context, b *bed, n int) error {
		t, err := b.cold(ctx)
		if err != nil {
			return err
		}
		h, end, err := t.Hold(ctx, mb)
		if err != nil {
			return err
		}
		defer end()
		own, err := ours(ctx, h)
		if err != nil {
			return err
		}
		subjects := []bench.Subject{own}
		if r := b.runsc(); r != nil {
			c, err := b.lab.Hold(ctx, r, mb)
			if err != nil {
				return fmt.Errorf("runsc: %w", err)
			}
			defer c.Drop()
			other, err := theirs(c)
			if err != nil {
				return fmt.Errorf("runsc: %w", err)
			}
			subjects = append(subjects, other)
		}
		err = b.compare(ctx, n, []string{measure}, subjects...)
		for _, r := range b.results {
			r.Name = name
		}
		return err
	}}
}
