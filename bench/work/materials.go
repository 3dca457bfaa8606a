package work

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy/internal/benchrun"
)

//go:embed pins
var pins embed.FS

// The kinds of materials. Each is a folder of the cache, and of a place.
const (
	wheels = "wheels"
	npm    = "npm"
	golang = "go"
	debs   = "debs"
)

// DefaultCache is the default folder of materials.
const DefaultCache = benchrun.DefaultMaterials

// Materials are what some rows need and a template does not have: wheels, a cache of npm, a Go
// toolchain, Debian packages. They are fetched on the host by the usual clients, in the versions
// of the folder pins, and kept in a folder.
type Materials struct{ Cache string }

// A material is how a kind is fetched, and the file with its versions.
type material struct {
	client, hint string
	pins         string
	fetch        func(ctx context.Context, into string, pinned []byte) error
}

var kinds = map[string]material{
	wheels: {"python3", "Install Python 3 with pip (python3-pip).", "wheels", fetchWheels},
	npm:    {"npm", "Install Node with npm.", "package-lock.json", fetchModules},
	golang: {"apt-get", "It is there on Debian 12 alone. Run apt-get update if its lists are missing.", "go", fetchDebs},
	debs:   {"apt-get", "They are there on Debian 12 alone. Run apt-get update if its lists are missing.", "debs", fetchDebs},
}

// pinned are a kind's versions, which identify what was fetched.
func pinned(kind string) []byte {
	b, err := pins.ReadFile("pins/" + kinds[kind].pins)
	if err != nil {
		panic(err) // it is part of the program
	}
	return b
}

// stamp is the copy of the versions next to what was fetched.
const stamp = "pins"

func (m *Materials) folder(kind string) string { return filepath.Join(m.Cache, kind) }

func (m *Materials) reason(kind string) string { return m.folder(kind) + ".missing" }

// Lacks lists the materials of a row that are missing, and why; nil if there are none.
func (m *Materials) Lacks(r Row) error {
	for _, kind := range r.Needs {
		b, _ := os.ReadFile(filepath.Join(m.folder(kind), stamp))
		if string(b) == string(pinned(kind)) {
			continue
		}
		if why, err := os.ReadFile(m.reason(kind)); err == nil {
			return errors.New(string(why))
		}
		return fmt.Errorf("%s has not been fetched", m.folder(kind))
	}
	return nil
}

// Fetch fetches the materials that rows need and that are missing. Failures are recorded for
// Lacks, and are not errors.
func (m *Materials) Fetch(ctx context.Context, rows []Row, say func(string)) error {
	for _, r := range rows {
		for _, kind := range r.Needs {
			if m.Lacks(Row{Needs: []string{kind}}) == nil {
				continue
			}
			say(fmt.Sprintf("fetching %s into %s", kind, m.folder(kind)))
			if err := os.MkdirAll(m.Cache, 0o755); err != nil {
				return err
			}
			if err := m.fetch(ctx, kind); err != nil {
				if err := os.WriteFile(m.reason(kind), []byte(err.Error()), 0o644); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (m *Materials) fetch(ctx context.Context, kind string) error {
	k := kinds[kind]
	if _, err := exec.LookPath(k.client); err != nil {
		return fmt.Errorf("there is no %s in the PATH to fetch %s with. %s", k.client, kind, k.hint)
	}
	dir, err := os.MkdirTemp(m.Cache, kind+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if err := k.fetch(ctx, dir, pinned(kind)); err != nil {
		return fmt.Errorf("cannot fetch %s: %w. %s", kind, err, k.hint)
	}
	if err := os.WriteFile(filepath.Join(dir, stamp), pinned(kind), 0o644); err != nil {
		return err
	}
	_ = os.Remove(m.reason(kind))
	return errors.Join(os.RemoveAll(m.folder(kind)), os.Rename(dir, m.folder(kind)))
}

// archive is everything of a kind.
func (m *Materials) archive(kind string) (io.ReadCloser, error) {
	if err := m.Lacks(Row{Needs: []string{kind}}); err != nil {
		return nil, err
	}
	return archiveOf(m.folder(kind)), nil
}

// machines are the names of the architectures in the names of wheels.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

func fetchWheels(ctx context.Context, into string, pinned []byte) error {
	args := []string{"-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:",
		"--python-version=3.12", "--dest=" + into}
	for _, glibc := range []string{"manylinux_2_28_", "manylinux_2_17_", "manylinux2014_"} {
		args = append(args, "--platform="+glibc+machines[runtime.GOARCH])
	}
	return run(ctx, into, "python3", append(args, strings.Fields(string(pinned))...)...)
}

// fetchModules fills a cache by installing once, and records the registry that it is for.
func fetchModules(ctx context.Context, into string, lock []byte) error {
	description, err := pins.ReadFile("pins/package.json")
	if err != nil {
		return err
	}
	err = errors.Join(os.WriteFile(filepath.Join(into, "package.json"), description, 0o644),
		os.WriteFile(filepath.Join(into, "package-lock.json"), lock, 0o644))
	if err != nil {
		return err
	}
	if err := run(ctx, into, "npm", "ci", "--cache="+filepath.Join(into, "cache"), "--ignore-scripts", "--no-audit", "--no-fund"); err != nil {
		return err
	}
	if err := run(ctx, into, "sh", "-c", "npm config get registry >registry"); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(into, "node_modules"))
}

func fetchDebs(ctx context.Context, into string, pinned []byte) error {
	// What is fetched as root must not be fetched as a user who may not write here.
	args := []string{"download", "--quiet=2", "-o", "APT::Sandbox::User=root"}
	return run(ctx, into, "apt-get", slices.Concat(args, strings.Fields(string(pinned)))...)
}

// run runs a command in a folder. The error contains the end of its output.
func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		said := strings.TrimSpace(string(out))
		return fmt.Errorf("%s: %w: %s", name, err, said[max(0, len(said)-1000):])
	}
	return nil
}
