package template

import (
	"archive/zip"
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// These tests build real templates, which takes minutes and a network the first time. The folder
// BOTHY_TEMPLATES keeps the slowest builds for the next run.

// share returns the folder with the data files that come with bothy.
func share(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("BOTHY_SHARE"); dir != "" {
		return dir
	}
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "run", "-buildvcs=false", "../cmd/pybundle", "-o", filepath.Join(dir, "python-3.12.tar.zst")).CombinedOutput()
	if err != nil {
		t.Fatalf("pybundle: %v: %s", err, out)
	}
	return dir
}

// builtIn returns a built-in template and a folder with its files, for chroot. Unless fresh, an
// earlier run's build is used.
func builtIn(t *testing.T, name string, fresh bool) (*bothy.Template, string) {
	t.Helper()
	if testing.Short() {
		t.Skip("this takes minutes, so -short skips it")
	}
	dir := t.TempDir()
	if !fresh {
		dir = cmp.Or(os.Getenv("BOTHY_TEMPLATES"), dir)
	}
	l := NewLibrary(dir, Options{Share: share(t)})
	built, err := l.BuildTemplate(as(t, bothy.ScopeTemplatesWrite), bothy.TemplateBuild{Name: name}, func(e bothy.BuildEvent) { t.Log(e.Step, e.Message) })
	must(t, err)
	root := unpackImageFile(t, row(t, l, built).RootFS)
	// The tool that unpacks sets the owner after the mode, which clears this bit.
	must(t, os.Chmod(filepath.Join(root, "usr/bin/sudo"), os.ModeSetuid|0o755))
	return built, root
}

// inside runs a command as the template's user with a login shell in a chroot, and returns its
// output.
func inside(t *testing.T, root, command string) string {
	t.Helper()
	const enter = `mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" &&
		exec chroot --userspec=1000:1000 "$0" /usr/bin/env -i HOME=/home/user LANG=C.UTF-8 /bin/bash -lc "cd /workspace; $1"`
	out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", enter, root, command).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return strings.TrimSpace(string(out))
}

func says(t *testing.T, root, command, want string) {
	t.Helper()
	if got := inside(t, root, command); !strings.Contains(got, want) {
		t.Errorf("%s printed %q, want %q", command, got, want)
	}
}

func TestPythonBare(t *testing.T) {
	built, root := builtIn(t, "python-3.12-bare", true)
	if built.Packages["python"] == "" || built.Packages["pip"] == "" || built.Source != "debian:bookworm" {
		t.Errorf("manifest %+v", built)
	}
	says(t, root, "id", "uid=1000(user) gid=1000(user)")
	says(t, root, "sudo -n id", "uid=0(root)")
	says(t, root, "PATH=/mine:$PATH bash -lc 'echo $PATH'", "/mine:/")
	says(t, root, "env -i /bin/bash -lc 'env; id -u'", "PATH=/")
	says(t, root, "grep -c id.-u /etc/profile", "1") // only for the prompt: a login shell must not start programs
	says(t, root, "touch made && stat -c %U made", "user")
	says(t, root, "python --version", "Python 3.12.")
	says(t, root, "python3 -c 'import sys; print(sys.prefix)'", "/usr/local")
	says(t, root, "python -c 'import ssl, sqlite3, lzma, bz2, ctypes, readline, curses, zoneinfo; print(zoneinfo.ZoneInfo(\"Europe/Paris\"))'", "Europe/Paris")
	says(t, root, "pip --version", "pip "+built.Packages["pip"]+" from /usr/local/")
	says(t, root, "pip3 --version", "python 3.12")

	wheel(t, filepath.Join(root, "workspace/hello-1.0-py3-none-any.whl"))
	says(t, root, "pip install --no-index ./hello-1.0-py3-none-any.whl", "Successfully installed hello-1.0")
	says(t, root, "python -c 'import hello; print(hello.__file__)'", "/usr/local/lib/python3.12/site-packages/hello.py")
	says(t, root, "hello", "hello from a wheel")
	says(t, root, "python -m venv env && env/bin/pip install --no-index ./hello-1.0-py3-none-any.whl && env/bin/hello", "hello from a wheel")
	says(t, root, "env/bin/python -c 'import sys; print(sys.prefix)'", "/workspace/env")

	says(t, root, "pip freeze --all", "pip=="+built.Packages["pip"])
	says(t, root, "env/bin/pip freeze --all", "pip=="+built.Packages["pip"])

	// The bytecode from the build is used: nothing is compiled again.
	says(t, root, "python -v -c 'import json' 2>&1 | grep -c 'code object from.*/json/.*\\.py.$' || true", "0")
	says(t, root, "python -v -c 'import json' 2>&1", "matches /usr/local/lib/python3.12/json/__init__.py")
}

// wheel writes a package with a module and a command.
func wheel(t *testing.T, path string) {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range [][2]string{
		{"hello.py", "def main():\n    print('hello from a wheel')\n"},
		{"hello-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n"},
		{"hello-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"hello-1.0.dist-info/entry_points.txt", "[console_scripts]\nhello = hello:main\n"},
		{"hello-1.0.dist-info/RECORD", "hello.py,,\nhello-1.0.dist-info/METADATA,,\nhello-1.0.dist-info/WHEEL,,\nhello-1.0.dist-info/entry_points.txt,,\nhello-1.0.dist-info/RECORD,,\n"},
	} {
		w, err := z.Create(f[0])
		must(t, err)
		_, err = w.Write([]byte(f[1]))
		must(t, err)
	}
	must(t, z.Close())
	must(t, os.WriteFile(path, b.Bytes(), 0o644))
}

func TestPythonWithLibraries(t *testing.T) {
	built, root := builtIn(t, "python-3.12", false)
	for _, name := range []string{"numpy", "pandas", "scikit-learn", "python"} {
		if built.Packages[name] == "" {
			t.Errorf("the manifest has no version of %s: %v", name, built.Packages)
		}
	}
	says(t, root, "pip check", "No broken requirements found")
	says(t, root, "python -W error -c 'import numpy, numpy.testing, pandas, pandas.testing, matplotlib.pyplot, scipy.stats, scipy.optimize, requests, PIL.Image, openpyxl, bs4, lxml.etree, sklearn.linear_model, sklearn.utils.estimator_checks, ipykernel; print(1)'", "1")
	says(t, root, "python -c 'import numpy, pandas; print(pandas.DataFrame({1: numpy.arange(5)}).sum().iloc[0])'", "10")
	says(t, root, "python -c 'import matplotlib.pyplot as p; p.plot([1, 2]); p.savefig(\"a.png\")' && file=$(head -c 4 a.png | tail -c 3); echo $file", "PNG")
	says(t, root, "node --version", "v"+built.Packages["node"])
	says(t, root, "npm config get prefix", "/usr/local")
	says(t, root, "head -1 /usr/local/bin/ipython", "#!/usr/local/bin/python3.12")
}

func TestNode(t *testing.T) {
	built, root := builtIn(t, "node-22", false)
	says(t, root, "node --version", "v"+built.Packages["node"])
	says(t, root, "node -p 'process.versions.node.split(\".\")[0]'", "22")
	says(t, root, "npm config get prefix", "/usr/local")
	says(t, root, "mkdir -p hi && echo '{\"name\": \"hi\", \"version\": \"1.0.0\", \"bin\": \"hi.js\"}' > hi/package.json && printf '#!/usr/bin/env node\\nconsole.log(40 + 2)\\n' > hi/hi.js && npm pack ./hi --silent && npm install --global --offline --silent ./hi-1.0.0.tgz && hi", "42")
	says(t, root, "npx --version", ".")
	says(t, root, "sudo -n node --version", "v22")
}
