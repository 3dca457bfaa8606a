package testserver

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// variants are builds of the program that differ from the one under test, and from each
// other, in every program of their engines.
var variants struct {
	sync.Mutex
	dir  string
	made map[string]string
}

// Variant builds one, or returns the one that was built before. Its programs are compiled in
// another way, so that all in them lies elsewhere. BOTHY_TEST_UPGRADE_name is the path of a
// whole program to take instead, such as one with another version of gVisor. In the folder
// BOTHY_TEST_WORK, which all suites of a run share, one is kept for the other packages.
func Variant(t *testing.T, name string) string {
	t.Helper()
	if path := os.Getenv("BOTHY_TEST_UPGRADE_" + name); path != "" {
		return path
	}
	variants.Lock()
	defer variants.Unlock()
	if path := variants.made[name]; path != "" {
		return path
	}
	kept := ""
	if work := os.Getenv("BOTHY_TEST_WORK"); work != "" {
		kept = filepath.Join(work, "bothy-"+name)
		if _, err := os.Stat(kept); err == nil {
			return kept
		}
	}
	path, err := buildVariant(name)
	if err == nil && kept != "" {
		err = os.Rename(path, kept)
		path = kept
	}
	if err != nil {
		t.Fatalf("build another bothy: %v", err)
	}
	variants.made[name] = path
	return path
}

func buildVariant(name string) (string, error) {
	root, err := Repository()
	if err != nil {
		return "", err
	}
	if variants.dir == "" {
		if variants.dir, err = os.MkdirTemp("/var/tmp", "bothy-variants-"); err != nil {
			return "", err
		}
		variants.made = map[string]string{}
	}
	dir := filepath.Join(variants.dir, name)
	packed := filepath.Join(dir, "packed")
	if err := os.MkdirAll(packed, 0o755); err != nil {
		return "", err
	}
	// The flags with which the tests are built say which gVisor.
	flags := cmp.Or(os.Getenv("GOFLAGS"), "-trimpath -buildvcs=false -tags=gvisorpatched -modfile="+filepath.Join(root, "bin/go.mod"))
	run := func(args ...string) error {
		cmd := exec.Command("go", args...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="+flags)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %v: %w\n%s", args, err, out)
		}
		return nil
	}
	pack := []string{"run", "./internal/embedded/pack", "-o", packed}
	for _, program := range []string{"guest", "sentry", "vminit"} {
		out := filepath.Join(dir, program)
		// The symbols stay in, and main is compiled with fewer optimisations.
		if err := run("build", "-ldflags=-buildid="+name, "-gcflags=-l", "-o", out, "./cmd/"+program); err != nil {
			return "", err
		}
		pack = append(pack, "-"+program, out)
	}
	if err := run(pack...); err != nil {
		return "", err
	}
	replace := map[string]string{}
	for _, file := range []string{"index.json", "guest.erofs.zst", "sentry.zst", "vminit.zst"} {
		replace[filepath.Join(root, "internal/embedded/bin", file)] = filepath.Join(packed, file)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlayFile := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "bothy")
	return path, run("build", "-ldflags=-s -w -X main.version="+name, "-overlay", overlayFile, "-o", path, "./cmd/bothy")
}

// RemoveVariants is called when all tests have ended.
func RemoveVariants() { os.RemoveAll(variants.dir) }
