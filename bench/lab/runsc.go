package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bothy-dev/bothy/bench"
)

// Runsc is gVisor's own command, built from the module that Bothy links.
type Runsc struct {
	binary string
	bundle string
	root   string
	runs   atomic.Int64
}

// BuildRunsc builds the command from a folder of Bothy's Go module. It needs the host's network
// to fetch modules, so it comes before Enter.
func BuildRunsc(source, into string) error {
	dir, err := os.MkdirTemp("", "bothy-bench-runsc-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	// A copy of go.mod, since the command needs modules that Bothy does not.
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	build := exec.Command("go", "build", "-mod=mod", "-modfile="+filepath.Join(dir, "go.mod"), "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w", "-o", into, "gvisor.dev/gvisor/runsc")
	build.Dir, build.Env = source, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build runsc: %w: %s", err, out)
	}
	return nil
}

// Runsc makes a bundle on the template's files.
func (l *Lab) Runsc() (*Runsc, error) {
	if l.Options.Runsc == "" {
		return nil, &Missing{"runsc", "there is no such program in the PATH"}
	}
	r := &Runsc{binary: l.Options.Runsc, bundle: filepath.Join(l.Dir, "bundle"), root: filepath.Join(l.Dir, "runsc")}
	tree, err := l.Tree()
	if err != nil {
		return nil, err
	}
	l.undo.Add(r.deleteAll)
	return r, writeBundle(r.bundle, tree, []string{"/bin/true"})
}

// Version returns the program's own description.
func (r *Runsc) Version() string { return firstLine(r.binary, "--version") }

// writeBundle describes a container on the template's files.
func writeBundle(bundle, tree string, args []string) error {
	spec := &specs.Spec{
		Version: "1.0.0",
		Process: &specs.Process{Args: args, Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}, Cwd: "/"},
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
	if err := os.MkdirAll(bundle, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(bundle, "config.json"), b, 0o644)
}

// RunOnce is a subject: runsc run, from the command's start to its end, when the container is
// gone.
func (r *Runsc) RunOnce() bench.Subject {
	return bench.RunOf("runsc", func(context.Context) error {
		out, err := r.command("run", "--bundle="+r.bundle, r.newID()).CombinedOutput()
		if err != nil {
			return fmt.Errorf("runsc run: %w: %s", err, out)
		}
		return nil
	})
}
