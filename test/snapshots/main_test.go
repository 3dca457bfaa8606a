package snapshots

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	bare = "python-3.12-bare"
	// hangs is how long anything may take before it counts as hanging.
	hangs = 60 * time.Second
)

// program is the path of the bothy binary, and shared the server of all tests
// that do nothing to it.
var (
	program string
	shared  *server
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	flag.Parse()
	if !given("test.parallel") {
		_ = flag.Set("test.parallel", "4")
	}
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "prepare the tests of snapshots:", err)
		return 1
	}
	code = m.Run()
	if err := shared.shutDown(); err != nil {
		fmt.Fprintln(os.Stderr, "after the tests of snapshots:", err)
		code = max(code, 1)
	}
	if code != 0 {
		shared.showLog(os.Stderr)
	}
	return code
}

func given(name string) (found bool) {
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

func prepare() (err error) {
	if os.Geteuid() != 0 {
		return errors.New("sandboxes need root: run the tests as root")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	if program, err = findProgram(root); err != nil {
		return err
	}
	if os.Getenv("BOTHY_SHARE") == "" {
		os.Setenv("BOTHY_SHARE", filepath.Join(root, "bin/share"))
	}
	if shared, err = newServer(); err != nil {
		return err
	}
	if err = shared.start(""); err == nil {
		err = shared.ensureTemplate()
	}
	if err != nil {
		shared.showLog(os.Stderr)
		err = errors.Join(err, shared.shutDown())
	}
	return err
}

// findProgram returns BOTHY_BIN, or bin/bothy, which it builds if it is not
// there.
func findProgram(root string) (string, error) {
	if path := os.Getenv("BOTHY_BIN"); path != "" {
		return path, nil
	}
	path := filepath.Join(root, "bin/bothy")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	cmd := exec.Command("make", "build")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make build: %w\n%s", err, out)
	}
	return path, nil
}

// templatesFolder is BOTHY_TEMPLATES, or one that is kept from run to run.
func templatesFolder() (string, error) {
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

func (s *server) ensureTemplate() error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	_, err := s.Templates.Template(ctx, bare)
	if bothy.ErrorCode(err) != bothy.CodeTemplateNotFound {
		return err
	}
	_, err = s.Templates.BuildTemplate(ctx, bothy.TemplateBuild{Name: bare}, func(bothy.BuildEvent) {})
	return err
}
