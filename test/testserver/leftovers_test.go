package testserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLeftoversAreSeen puts on the host what a server might leave there, of one
// sandbox and of another.
func TestLeftoversAreSeen(t *testing.T) {
	dir := t.TempDir()
	s := &Server{Dir: dir, Home: filepath.Join(dir, "home")}
	if err := s.Leftovers(""); err != nil {
		t.Fatalf("before anything is there: %v", err)
	}
	machine := filepath.Join(s.Home, "machines", "sbxone")
	for _, path := range []string{machine, filepath.Join(s.Home, "vms", ".kept"), filepath.Join(s.Home, "snapshots", "snphalf")} {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("sh", "-c", "read line", machine)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		stdin.Close()
		_ = cmd.Wait()
	}()
	for _, id := range []string{"", "sbxone"} {
		err := s.Leftovers(id)
		if err == nil || !strings.Contains(err.Error(), "process") || !strings.Contains(err.Error(), "folder sbxone") || strings.Contains(err.Error(), ".kept") {
			t.Errorf("of %q there is: %v", id, err)
		}
	}
	if err := s.Leftovers("sbxtwo"); err != nil {
		t.Errorf("of another sandbox there is: %v", err)
	}
	if err := s.drafts(); err == nil || !strings.Contains(err.Error(), "snphalf") {
		t.Errorf("next to the snapshots there is: %v", err)
	}
}
