package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// templateName is the template of all the sandboxes here.
	templateName = "python-3.12-bare"
	// hangs is how long anything may take before it counts as hanging. It is no
	// measure of speed: the machine may be busy with other things.
	hangs = 60 * time.Second
)

// program is the path of the bothy binary, and shared the server that all tests
// use but those that kill it.
var (
	program string
	shared  *server
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	flag.Parse()
	// Most tests wait for their sandboxes most of the time.
	if !set("test.parallel") {
		_ = flag.Set("test.parallel", "6")
	}
	err := prepare()
	if err != nil {
		fmt.Fprintln(os.Stderr, "prepare the end-to-end tests:", err)
		return 1
	}
	code = m.Run()
	if err := shared.shutDown(); err != nil {
		fmt.Fprintln(os.Stderr, "after the end-to-end tests:", err)
		code = max(code, 1)
	}
	if code != 0 {
		shared.showLog(os.Stderr)
	}
	return code
}

func set(name string) (found bool) {
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// prepare finds or builds what is needed, and starts the shared server.
func prepare() (err error) {
	if os.Geteuid() != 0 {
		return errors.New("sandboxes need root: run the tests as root")
	}
	root, err := repository()
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
	if err = shared.start(); err == nil {
		err = shared.ensureTemplate()
	}
	if err != nil {
		shared.showLog(os.Stderr)
		err = errors.Join(err, shared.shutDown())
	}
	return err
}

// repository is the folder above this one that holds go.mod.
func repository() (string, error) {
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

// findProgram returns BOTHY_BIN, or bin/bothy of the repository, which it builds
// if it is not there.
func findProgram(root string) (string, error) {
	if path := os.Getenv("BOTHY_BIN"); path != "" {
		return path, nil
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

// ensureTemplate builds the template unless it is there.
func (s *server) ensureTemplate() error {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	_, err := s.Templates.Template(ctx, templateName)
	if bothy.ErrorCode(err) != bothy.CodeTemplateNotFound {
		return err
	}
	_, err = s.Templates.BuildTemplate(ctx, bothy.TemplateBuild{Name: templateName}, func(bothy.BuildEvent) {})
	return err
}
