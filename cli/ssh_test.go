package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKnownHosts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bothy", "hosts")
	for _, step := range []struct{ host, key, want string }{
		{"a.bothy", "ssh-ed25519 A", "a.bothy ssh-ed25519 A\n"},
		{"b.bothy", "ssh-ed25519 B", "a.bothy ssh-ed25519 A\nb.bothy ssh-ed25519 B\n"},
		{"a.bothy", "ssh-ed25519 A", "a.bothy ssh-ed25519 A\nb.bothy ssh-ed25519 B\n"},
		{"a.bothy", "ssh-ed25519 C", "b.bothy ssh-ed25519 B\na.bothy ssh-ed25519 C\n"},
	} {
		if err := rememberHost(path, step.host, step.key); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); string(got) != step.want || err != nil {
			t.Errorf("after %s %s: %q, %v", step.host, step.key, got, err)
		}
	}
	for host, key := range map[string]string{"*": "ssh-ed25519 A", "a b": "ssh-ed25519 A", "a": "ssh-ed25519 A\n* ssh-ed25519 B", "@cert-authority": "x y", "c": ""} {
		if err := rememberHost(path, host, key); err == nil {
			t.Errorf("%q %q was written", host, key)
		}
	}
	full := strings.Repeat("old.bothy ssh-ed25519 OLD\n", maxKnownHosts/20)
	if err := os.WriteFile(path, []byte(full), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := rememberHost(path, "new.bothy", "ssh-ed25519 N"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || len(got) > maxKnownHosts || !strings.HasPrefix(string(got), "old.bothy ") || !strings.HasSuffix(string(got), "OLD\nnew.bothy ssh-ed25519 N\n") {
		t.Errorf("a full file has %d bytes, %v", len(got), err)
	}
}
