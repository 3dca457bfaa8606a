package template

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bothy-dev/bothy/internal/bounded"
	filetree "github.com/bothy-dev/bothy/template/tree"
	"github.com/bothy-dev/bothy/templates"
)

const (
	pythonLib  = "/usr/local/lib/python3.12"
	pythonExe  = "/usr/local/bin/python3.12"
	pipWheels  = pythonLib + "/ensurepip/_bundled"
	systemCA   = "/etc/ssl/certs/ca-certificates.crt"
	pipConf    = "[global]\nbreak-system-packages = true\ndisable-pip-version-check = true\nno-cache-dir = true\nroot-user-action = ignore\n"
	runPip     = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); sys.executable = sys.argv.pop(1); runpy.run_module('pip', run_name='__main__', alter_sys=True)"
	bundleKind = ".tar.zst"
)

func (b *build) pythonSteps(p *pythonPart) []step {
	steps := []step{{"python", 6, func(ctx context.Context) error { return b.python(ctx, p) }}}
	if p.Requirements != "" {
		steps = append(steps, step{"packages", 25, func(ctx context.Context) error {
			return b.requirements(ctx, p.Requirements)
		}})
	}
	return append(steps, step{"compile", 8, b.compile})
}

// python installs CPython and pip in /usr/local, owned by the user, so that `pip install` needs
// neither root nor --user.
func (b *build) python(ctx context.Context, p *pythonPart) error {
	bundle, err := b.lib.shared(p.Bundle + bundleKind)
	if err != nil {
		return err
	}
	if err := unpackBundle(ctx, bundle, filepath.Join(b.root.dir, "usr/local")); err != nil {
		return fmt.Errorf("unpack %s: %w", bundle, err)
	}
	if err := b.ensurepip(ctx, p.Pip); err != nil {
		return err
	}
	if err := b.root.write("/etc/pip.conf", pipConf, 0o644); err != nil {
		return err
	}
	b.notePackages(p.Pip, "pip")
	b.t.Packages["python"], err = b.pythonVersion(ctx)
	return err
}

// ensurepip fetches the wheel of pip to where `python -m venv` looks for it, and installs it
// instead of the bundle's older one.
func (b *build) ensurepip(ctx context.Context, lock string) error {
	code, err := templates.Files.ReadFile("ensurepip.py")
	if err != nil {
		return err
	}
	for _, name := range []string{"__init__.py", "__main__.py"} {
		text := string(code)
		if name == "__main__.py" {
			text = "import sys\n\nimport ensurepip\n\nsys.exit(ensurepip._main())\n"
		}
		if err := b.root.write(path.Join(pythonLib, "ensurepip", name), text, 0o644); err != nil {
			return err
		}
	}
	if err := b.download(ctx, b.root.dir, lock, filepath.Join(b.root.dir, pipWheels)); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(b.root.dir, pythonLib, "site-packages/pip*"))
	if err != nil {
		return err
	}
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	wheel, err := only(filepath.Join(b.root.dir, pipWheels, "pip-*.whl"))
	if err != nil {
		return err
	}
	// Install by name, because pip would record the path of a file.
	return b.pip(ctx, b.root.dir, wheel, "install", "--no-index", "--find-links", filepath.Dir(wheel), "--no-deps", "--no-compile", "pip")
}

// requirements installs the packages of a lock file. Only wheels are allowed: they are unpacked
// without running their code.
func (b *build) requirements(ctx context.Context, lock string) error {
	file, err := b.lockFile(lock)
	if err != nil {
		return err
	}
	wheel, err := only(filepath.Join(b.root.dir, pipWheels, "pip-*.whl"))
	if err != nil {
		return err
	}
	err = b.pip(ctx, b.root.dir, wheel, "install", "--require-hashes", "--only-binary", ":all:", "--no-compile", "-r", file)
	if err != nil {
		return err
	}
	if err := b.dropTests(); err != nil {
		return err
	}
	wanted, err := templates.Files.ReadFile(strings.TrimSuffix(lock, ".lock") + ".in")
	if err != nil {
		return err
	}
	b.notePackages(lock, lines(string(wanted))...)
	return nil
}

// dropTests deletes the packages' own tests, a quarter of their files.
func (b *build) dropTests() error {
	site := filepath.Join(b.root.dir, pythonLib, "site-packages")
	return filepath.WalkDir(site, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || d.Name() != "tests" {
			return err
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		return fs.SkipDir
	})
}

// download fetches the wheels of a lock file into a folder, with the interpreter below root.
func (b *build) download(ctx context.Context, root, lock, to string) error {
	file, err := b.lockFile(lock)
	if err != nil {
		return err
	}
	site := filepath.Join(root, pythonLib, "site-packages")
	return b.pip(ctx, root, site, "download", "--require-hashes", "--only-binary", ":all:", "--no-deps", "-d", to, "-r", file)
}

// pip runs the pip at lib (a folder or a wheel) on the host, with the interpreter of the root
// file system. It installs there, reaches the index as the host does, and writes scripts that
// start the interpreter by its path inside.
func (b *build) pip(ctx context.Context, root, lib string, args ...string) error {
	env := []string{
		"PIP_DISABLE_PIP_VERSION_CHECK=1", "PIP_PROGRESS_BAR=off", "PIP_ROOT_USER_ACTION=ignore", "PIP_NO_INPUT=1",
		"PIP_USER=0", "PIP_REQUIRE_VIRTUALENV=0", "PIP_TARGET=", "PIP_PREFIX=", "PIP_ROOT=",
		"PIP_CACHE_DIR=" + filepath.Join(b.lib.dir, ".cache", "pip"),
	}
	if ca := hostCA(); ca != "" {
		env = append(env, "PIP_CERT="+ca)
	}
	argv := []string{filepath.Join(root, pythonExe), "-I", "-B", "-c", runPip, lib, pythonExe}
	return b.command(ctx, env, append(argv, args...)...)
}

// hostCA is the host's file of trusted authorities, which may include a TLS-inspecting proxy's.
func hostCA() string {
	for _, path := range []string{os.Getenv("PIP_CERT"), os.Getenv("SSL_CERT_FILE"), systemCA} {
		if info, err := os.Stat(path); path != "" && err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// compile compiles all Python files, which otherwise every sandbox would do at its first
// import.
func (b *build) compile(ctx context.Context) error {
	if err := b.root.touchAll(pythonLib); err != nil {
		return err
	}
	err := b.command(ctx, []string{"PYTHONHASHSEED=0"}, filepath.Join(b.root.dir, pythonExe), "-I", "-S", "-m", "compileall", "-q", "-q", "-j", "0",
		"--invalidation-mode", "timestamp", "-s", b.root.dir, "-p", "/", filepath.Join(b.root.dir, pythonLib))
	var exit interface{ ExitCode() int }
	// Some packages contain files that are not valid Python, as test data.
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		return err
	}
	return b.root.chownAll("/usr/local", userID)
}

func (b *build) pythonVersion(ctx context.Context) (string, error) {
	out, err := hostCommand(ctx, filepath.Join(b.root.dir, pythonExe), "-I", "-S", "-c", "import platform; print(platform.python_version())")
	return strings.TrimSpace(out), err
}

// lockFile writes a lock file to where pip can read it.
func (b *build) lockFile(name string) (string, error) {
	data, err := templates.Files.ReadFile(name)
	if err != nil {
		return "", err
	}
	to := filepath.Join(b.work, name)
	return to, os.WriteFile(to, data, 0o644)
}

// notePackages records the locked versions of packages in the manifest.
func (b *build) notePackages(lock string, names ...string) {
	data, err := templates.Files.ReadFile(lock)
	if err != nil {
		return
	}
	for _, line := range lines(string(data)) {
		name, version, ok := strings.Cut(strings.TrimSuffix(line, " \\"), "==")
		for _, n := range names {
			if ok && n == name {
				b.t.Packages[name] = version
			}
		}
	}
}

// only returns the one file that a pattern matches.
func only(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%d files match %s, not one", len(found), pattern)
	}
	return found[0], nil
}

// unpackBundle extracts a tar from our own build.
func unpackBundle(ctx context.Context, file, dir string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := bounded.Decompress(ctx, f, maxImageBytes)
	if err != nil {
		return err
	}
	defer z.Close()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root, err := openRootfs(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return bounded.Tar(ctx, z, filetree.MaxFiles, func(h *tar.Header, content io.Reader) error {
		return unpackEntry(root, h, content)
	})
}

func unpackEntry(r *rootfs, h *tar.Header, content io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir:
		return r.mkdir(h.Name, 0o755, 0)
	case tar.TypeSymlink:
		return r.symlink(h.Linkname, h.Name)
	}
	return r.copyIn(h.Name, content, fs.FileMode(h.Mode).Perm())
}
