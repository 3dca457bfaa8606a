// Package testserver runs the real program as a child process, for tests of the
// whole: a server that many tests share, and such as one test has for itself, which
// can be killed and started again. When one is shut down nothing of it may be left
// on the host. It needs root and bin/bothy, which `make build` makes. Only tests
// import it.
package testserver

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const (
	// Template is there on every server that Main shares.
	Template = "python-3.12-bare"
	// Hangs is how long anything may take before it counts as hanging. It is no
	// measure of speed: the machine may be busy with other things.
	Hangs = 5 * time.Minute
)

// Main runs the tests of a package and returns the exit code for its TestMain. The
// server that all tests may use is given to share before the first. So many tests
// as parallel says run at once, unless the flag says otherwise: most wait for their
// sandboxes most of the time.
func Main(m *testing.M, parallel int, share func(*Server)) (code int) {
	flag.Parse()
	if !given("test.parallel") {
		_ = flag.Set("test.parallel", fmt.Sprint(parallel))
	}
	defer stopDatabases()
	shared, err := prepare()
	if err != nil {
		fmt.Fprintln(os.Stderr, "before the tests:", err)
		return 1
	}
	share(shared)
	code = m.Run()
	if err := shared.ShutDown(); err != nil {
		fmt.Fprintln(os.Stderr, "after the tests:", err)
		code = max(code, 1)
	}
	if code != 0 {
		shared.ShowLog(os.Stderr)
	}
	return code
}

func given(name string) (found bool) {
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// prepare finds or builds what is needed, and starts a server.
func prepare() (*Server, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("sandboxes need root: run the tests as root")
	}
	root, err := Repository()
	if err != nil {
		return nil, err
	}
	if os.Getenv("BOTHY_SHARE") == "" {
		os.Setenv("BOTHY_SHARE", filepath.Join(root, "bin/share"))
	}
	if err := ensureTemplate(root); err != nil {
		return nil, err
	}
	s, err := newServer()
	if err != nil {
		return nil, err
	}
	if err := s.Start(); err != nil {
		s.ShowLog(os.Stderr)
		return nil, errors.Join(err, s.ShutDown())
	}
	return s, nil
}

// Repository is the folder above the package's that holds go.mod.
func Repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no go.mod above the working folder")
}

// Program is the path of the program: BOTHY_BIN, or bin/bothy of the repository,
// which is built if it is not there.
func Program() (string, error) { return program() }

var program = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("BOTHY_BIN"); path != "" {
		return path, nil
	}
	root, err := Repository()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin/bothy")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	cmd := exec.Command("make", "build")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make build: %w\n%s", err, out)
	}
	return path, nil
})

// Templates is the folder of the prepared templates, which no server uses itself: BOTHY_TEMPLATES, or
// one that is kept from run to run.
func Templates() (string, error) {
	if dir := os.Getenv("BOTHY_TEMPLATES"); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "bothy-e2e/templates")
	return dir, os.MkdirAll(dir, 0o755)
}

// ensureTemplate prepares the template unless it is there.
func ensureTemplate(root string) error {
	dir, err := Templates()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, Template)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	cmd := exec.Command("go", "run", "./template/cmd/tmplbuild", "-dir", dir, "-share", os.Getenv("BOTHY_SHARE"), Template)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the template %s: %w\n%s", Template, err, out)
	}
	return nil
}

// ownTemplates makes a folder of templates for one server, with links to the prepared ones.
func ownTemplates(folder string) error {
	prepared, err := Templates()
	if err != nil {
		return err
	}
	root, err := Repository()
	if err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(root, "scripts/own-templates"), folder)
	cmd.Env = append(os.Environ(), "BOTHY_TEMPLATES="+prepared)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("link the templates: %w\n%s", err, out)
	}
	return nil
}
