package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bothy-dev/bothy/bench"
)

// Runsc is gVisor's own command, built from the module that Bothy links.
type Runsc struct {
	binary string
	bundle string
	root   string
	runs   int
}

// Runsc builds the command and makes a bundle on the template's files.
func (l *Lab) Runsc(ctx context.Context) (*Runsc, error) {
	r := &Runsc{binary: filepath.Join(l.Bin, "runsc"), bundle: filepath.Join(l.Dir, "bundle"), root: filepath.Join(l.Dir, "runsc")}
	// A copy of go.mod, since the command needs modules that Bothy does not.
	modfile := filepath.Join(l.Dir, "go.mod")
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(l.Source, name))
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(l.Dir, name), b, 0o600); err != nil {
			return nil, err
		}
	}
	build := exec.CommandContext(ctx, "go", "build", "-mod=mod", "-modfile="+modfile, "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w", "-o", r.binary, "gvisor.dev/gvisor/runsc")
	build.Dir, build.Env = l.Source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build runsc: %w: %s", err, out)
	}
	tree, err := l.Tree()
	if err != nil {
		return nil, err
	}
	return r, r.writeBundle(tree)
}

func (r *Runsc) writeBundle(tree string) error {
	spec := &specs.Spec{
		Version: "1.0.0",
		Process: &specs.Process{Args: []string{"/bin/true"}, Env: []string{"PATH=/usr/bin:/bin"}, Cwd: "/"},
		Root:    &specs.Root{Path: tree},
		Mounts:  []specs.Mount{{Destination: "/proc", Type: "proc", Source: "proc"}},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace}, {Type: specs.IPCNamespace},
			{Type: specs.UTSNamespace}, {Type: specs.MountNamespace},
		}},
	}
	b, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.bundle, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.bundle, "config.json"), b, 0o644)
}

// RunOnce is a subject: runsc run, from the command's start to its end, when
// the container is gone.
func (r *Runsc) RunOnce() bench.Subject {
	return bench.Subject{Name: "runsc", Once: func(_ context.Context, record bench.Record) error {
		r.runs++
		id := fmt.Sprintf("bench-%d-%d", os.Getpid(), r.runs)
		begun := time.Now()
		out, err := exec.Command(r.binary, "--root="+r.root, "--network=none", "--platform=systrap", "--overlay2=root:memory",
			"run", "--bundle="+r.bundle, id).CombinedOutput()
		took := bench.Since(begun)
		record(bench.CreateExecCold, took)
		record(bench.WholeLifeCold, took)
		if err != nil {
			return fmt.Errorf("runsc run: %w: %s", err, out)
		}
		return nil
	}}
}
