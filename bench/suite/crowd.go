package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
)

var crowdJobs = []job{
	{names: []string{"exec_beside_hogs", "hog_least_share"}, usual: 200, quick: 20, run: execUnderLoad},
}

const (
	// hogs is how many sandboxes compute all the time.
	hogs = 4
	// warmUp is how long they do so before anything is measured, thinking how long the other
	// waits between two commands, and shared the minimum time for which each hog's share is
	// measured.
	warmUp, thinking, shared = 3 * time.Second, 50 * time.Millisecond, 10 * time.Second
)

// execUnderLoad measures how long a command takes in an otherwise idle sandbox while others
// compute, and how the smallest share of those compares with a fair one.
func execUnderLoad(ctx context.Context, b *bed, n int) error {
	t, err := b.cold(ctx)
	if err != nil {
		return err
	}
	var ids []string
	defer func() { clear(t, ids) }()
	for range hogs + 1 {
		sb, _, err := t.Create(ctx, bothy.SandboxCreate{})
		if err != nil {
			return err
		}
		ids = append(ids, sb.ID)
	}
	idle, busy := ids[0], ids[1:]
	for _, id := range busy {
		loop := bothy.ExecRequest{Command: bothy.Command{Args: []string{"/bin/sh", "-c", "while :; do :; done"}}, Background: true}
		if _, err := t.Client.Exec.Exec(ctx, id, loop); err != nil {
			return fmt.Errorf("start a hog: %w", err)
		}
	}
	bench.Sleep(ctx, warmUp)
	before, err := used(ctx, t, busy)
	if err != nil {
		return err
	}
	begun := time.Now()
	var took []float64
	for range n {
		one := time.Now()
		if err := t.Answer(ctx, idle); err != nil {
			return err
		}
		took = append(took, bench.Since(one))
		bench.Sleep(ctx, thinking)
	}
	bench.Sleep(ctx, shared-time.Since(begun))
	after, err := used(ctx, t, busy)
	if err != nil {
		return err
	}
	sum := 0.0
	for i := range after {
		after[i] -= before[i]
		sum += after[i]
	}
	if sum == 0 {
		return errors.New("the hogs have used no processor")
	}
	for i := range after {
		after[i] *= hogs / sum
	}
	least := bench.Single("hog_least_share", "of the fair share", after)
	least.Value = slices.Min(after)
	b.results = append(b.results, bench.Single("exec_beside_hogs", "ms", took), least)
	return nil
}

// used is how much each sandbox has used of the processors, in seconds.
func used(ctx context.Context, t bench.Target, ids []string) (seconds []float64, err error) {
	for _, id := range ids {
		m, err := t.Client.Metrics.Metrics(ctx, id)
		if err != nil {
			return nil, err
		}
		seconds = append(seconds, m.CPUSeconds)
	}
	return seconds, nil
}
