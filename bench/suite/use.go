package suite

import (
	"context"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
)

var useJobs = []job{
	{names: []string{"exec"}, usual: 200, quick: 20, run: execute},
	{names: []string{bench.FileRead4K}, usual: 200, quick: 20, run: readFile},
	{names: []string{bench.RunCodeWarm}, usual: 50, quick: 5, run: runCode},
}

func execute(ctx context.Context, b *bed, n int) error {
	t, err := b.cold(ctx)
	if err != nil {
		return err
	}
	sb, end, err := t.Create(ctx, bothy.SandboxCreate{})
	if err != nil {
		return err
	}
	defer end()
	subjects := []bench.Subject{bench.ExecIn(t, sb.ID)}
	if d := b.docker(ctx); d != nil {
		if b.container == "" {
			if b.container, err = d.Container("none"); err != nil {
				return err
			}
		}
		subjects = append(subjects, d.Exec(b.container))
	}
	if r := b.runsc(); r != nil {
		c, err := b.lab.Hold(ctx, r, 0)
		if err != nil {
			return err
		}
		defer c.Drop()
		subjects = append(subjects, c.Exec())
	}
	return b.compare(ctx, n, []string{"exec"}, subjects...)
}

func readFile(ctx context.Context, b *bed, n int) error {
	t, err := b.cold(ctx)
	if err != nil {
		return err
	}
	sb, end, err := t.Create(ctx, bothy.SandboxCreate{})
	if err != nil {
		return err
	}
	defer end()
	s, err := bench.ReadFile(t, sb.ID)
	if err != nil {
		return err
	}
	return b.compare(ctx, n, []string{bench.FileRead4K}, s)
}

// runCode measures in the template that has a kernel.
func runCode(ctx context.Context, b *bed, n int) error {
	t, err := b.cold(ctx)
	if err != nil {
		return err
	}
	sb, end, err := t.Create(ctx, bothy.SandboxCreate{Template: bothy.DefaultTemplate})
	if err != nil {
		return err
	}
	defer end()
	return b.compare(ctx, n, []string{bench.RunCodeWarm}, bench.RunCode(t, sb.ID))
}
