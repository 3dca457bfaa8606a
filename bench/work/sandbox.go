package work

import (
	"context"
	"io"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
)

// Size is the size of every place.
const (
	CPUs     = 2
	MemoryMB = 4096
	diskMB   = 16384
)

type sandbox struct {
	bench.Target
	id string
}

// InSandbox makes a sandbox to work in, and returns a function that ends it.
func InSandbox(ctx context.Context, t bench.Target, template string) (Place, func(), error) {
	forever := 0
	sb, end, err := t.Create(ctx, bothy.SandboxCreate{
		Template: template, CPU: CPUs, MemoryMB: MemoryMB, DiskMB: diskMB, TimeoutSeconds: &forever,
	})
	if err != nil {
		return nil, nil, err
	}
	return &sandbox{t, sb.ID}, end, nil
}

func (s *sandbox) Run(ctx context.Context, args ...string) (string, error) {
	r, err := s.Client.Exec.Exec(ctx, s.id, bothy.ExecRequest{Command: bothy.Command{Args: args}, User: "root", Cwd: "/"})
	return checked(args, r, err)
}

func (s *sandbox) Unpack(ctx context.Context, folder string, archive io.Reader) error {
	return s.Client.Files.WriteArchive(ctx, s.id, folder, "root", archive)
}
