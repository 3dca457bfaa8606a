package template

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bothy-dev/bothy"
)

// packages maps programs that builds need to Debian packages.
var packages = map[string]string{
	"apt-get":    "apt",
	"mkfs.erofs": "erofs-utils",
	"mmdebstrap": "mmdebstrap",
}

// needTools checks that this host can build templates.
func needTools(names ...string) error {
	if os.Geteuid() != 0 {
		return bothy.Errorf(bothy.CodePermission, "building a template needs root").
			WithHint("Run it with sudo, or ask a server that runs as root.")
	}
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			return bothy.Errorf(bothy.CodeUnsupported, "this host lacks the program %s, which building a template needs", name).
				WithHint("On Debian and Ubuntu: apt-get install %s.", packages[name])
		}
	}
	return nil
}

// shared finds a data file that comes with bothy.
func (l *Library) shared(name string) (string, error) {
	dirs := shareDirs(l.opts.Share)
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", bothy.Errorf(bothy.CodeUnsupported, "the data file %s, which comes with bothy, was not found in: %s", name, strings.Join(dirs, ", ")).
		WithHint("Run `make build`, or set BOTHY_SHARE to the folder that has it.")
}

// ReleaseKey is the file with the public key of the release that this program was installed from, or "".
func ReleaseKey() string {
	for _, dir := range shareDirs("") {
		path := filepath.Join(dir, "release.pub")
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

func shareDirs(chosen string) []string {
	if chosen != "" {
		return []string{chosen}
	}
	if env := os.Getenv("BOTHY_SHARE"); env != "" {
		return []string{env}
	}
	exe, err := os.Executable()
	if err != nil {
		return nil
	}
	if real, err := filepath.EvalSymlinks(exe); err == nil {
		exe = real
	}
	bin := filepath.Dir(exe)
	return []string{filepath.Join(bin, "share"), filepath.Join(filepath.Dir(bin), "share", "bothy")}
}

// lastLines returns the end of a program's output, for an error.
func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
