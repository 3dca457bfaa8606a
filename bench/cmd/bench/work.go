package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/bench"
	"github.com/bothy-dev/bothy/bench/lab"
)

func init() {
	programs["files"] = program{about: "a small file is read, and a large one goes up and down", run: files}
	programs["code"] = program{about: "1+1 in a context that runs, and in a kernel alone", run: code}
	programs["output"] = program{about: "the server's memory while much output passes", run: output}
}

// large is the size of the large file, in bytes.
const large = 1 << 30

func files(ctx context.Context, l *lab.Lab, b *book, n int) error {
	s, err := l.Server(ctx, "")
	if err != nil {
		return err
	}
	sb, end, err := s.Create(ctx, bothy.SandboxCreate{DiskMB: 4096})
	if err != nil {
		return err
	}
	defer end()
	small, err := bench.ReadFile(s.Target, sb.ID)
	if err != nil {
		return err
	}
	err = b.run(ctx, bench.Case{
		N: 200, Measures: []bench.Measure{{Name: bench.FileRead4K, Unit: "ms"}}, Subjects: []bench.Subject{small},
	})
	if err != nil {
		return err
	}
	d, err := l.Docker(ctx)
	if err != nil {
		return err
	}
	b.Host.Programs["docker"] = d.Version + " " + d.Driver
	container, err := d.Container("none")
	if err != nil {
		return err
	}
	path := filepath.Join(l.Dir, "large")
	if err := fill(path, large); err != nil {
		return err
	}
	open := func() (io.ReadCloser, error) { return os.Open(path) }
	return b.run(ctx, bench.Case{
		N: orElse(n, 5),
		Measures: []bench.Measure{
			{Name: bench.FileUp, Unit: "MB/s", Bounds: []bench.Bound{{Against: "docker", AtLeast: 0.5}}},
			{Name: bench.FileDown, Unit: "MB/s", Bounds: []bench.Bound{{Against: "docker", AtLeast: 0.5}}},
		},
		Subjects: []bench.Subject{bench.CopyFile(s.Target, sb.ID, large, open), d.Copy(container, path, large)},
	})
}

func fill(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(f, rand.Reader, size)
	return err
}

func code(ctx context.Context, l *lab.Lab, b *book, n int) error {
	s, err := l.Server(ctx, "")
	if err != nil {
		return err
	}
	sb, end, err := s.Create(ctx, bothy.SandboxCreate{Template: bothy.DefaultTemplate})
	if err != nil {
		return err
	}
	defer end()
	ours := bench.RunCode(s.Target, sb.ID)
	alone, err := bench.KernelAlone(ctx, s.Target, sb.ID)
	if err != nil {
		return err
	}
	return b.run(ctx, bench.Case{
		N: orElse(n, 100), Measures: []bench.Measure{{Name: bench.RunCodeWarm, Unit: "ms"}}, Subjects: []bench.Subject{ours, alone},
	})
}

// passed is how much output is transferred, in MiB, in portions.
const passed, portion = 5 << 10, 512

func output(ctx context.Context, l *lab.Lab, b *book, _ int) error {
	s, err := l.Server(ctx, "")
	if err != nil {
		return err
	}
	sb, end, err := s.Create(ctx, bothy.SandboxCreate{})
	if err != nil {
		return err
	}
	defer end()
	var rates, memory []float64
	for done := 0; done < passed; done += portion {
		r, err := bench.Output(ctx, s.Target, sb.ID, portion)
		if err != nil {
			return err
		}
		mb, err := resident(s.PID)
		if err != nil {
			return err
		}
		rates, memory = append(rates, r), append(memory, mb)
	}
	b.Results = append(b.Results, bench.Single("output_rate", "MB/s", rates), bench.Single("output_server_memory", "MB", memory),
		bench.Single("output_server_growth", "MB", []float64{memory[len(memory)-1] - slices.Min(memory[:2])}))
	return nil
}

// resident is the memory of a process, in MB.
func resident(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	var kb float64
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			_, err = fmt.Sscanf(rest, "%f kB", &kb)
		}
	}
	return kb / 1000, err
}
