//go:build linux && !clientonly

package cli

import (
	"encoding/json"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
	"github.com/bothy-dev/bothy/test/cli/pretend"
)

// stored writes credentials into the home of this test's user.
func stored(t *testing.T, c client.Credentials) {
	t.Helper()
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("BOTHY_URL", "")
	t.Setenv("BOTHY_API_KEY", "")
	if err := client.SaveCredentials(c); err != nil {
		t.Fatal(err)
	}
}

func credentialsPath(t *testing.T) string {
	t.Helper()
	path, err := client.CredentialsPath()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestKeyOfTheFileGoesToItsServerOnly(t *testing.T) {
	stored(t, client.Credentials{URL: "http://127.0.0.1:7700", APIKey: "bothy_secret"})
	a := newApp(os.Stdin, io.Discard, io.Discard)
	if c, err := a.credentials(); err != nil || c.APIKey != "bothy_secret" {
		t.Errorf("got %v, %v", c, err)
	}
	a.url = "http://127.0.0.1:7700/"
	if c, err := a.credentials(); err != nil || c.APIKey != "bothy_secret" {
		t.Errorf("the same server, written otherwise: got %v, %v", c, err)
	}
	a.url = "http://elsewhere.example.com"
	if c, err := a.credentials(); bothy.ErrorCode(err) != bothy.CodeUnauthenticated || c.APIKey != "" {
		t.Errorf("the key would be sent to %s: %v", c.URL, err)
	}
}

func TestEnvironmentWinsOverTheFile(t *testing.T) {
	stored(t, client.Credentials{URL: "http://127.0.0.1:7700", APIKey: "bothy_file"})
	t.Setenv("BOTHY_API_KEY", "bothy_environment")
	a := newApp(os.Stdin, io.Discard, io.Discard)
	if c, err := a.credentials(); err != nil || c.URL != "http://127.0.0.1:7700" || c.APIKey != "bothy_environment" {
		t.Errorf("got %v, %v", c, err)
	}
}

func TestDamagedFileIsNamed(t *testing.T) {
	stored(t, client.Credentials{})
	if err := os.WriteFile(credentialsPath(t), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := newApp(os.Stdin, io.Discard, io.Discard).credentials()
	if bothy.ErrorCode(err) != bothy.CodeInvalid {
		t.Errorf("got %v", err)
	}
}

func TestFileOfAnotherLiveServerIsLeftAlone(t *testing.T) {
	other := httptest.NewServer(newWorld(t).Handler())
	defer other.Close()
	theirs := client.Credentials{URL: other.URL, APIKey: pretend.Key}
	stored(t, theirs)
	t.Setenv("BOTHY_HOME", t.TempDir())
	writeAdmin(t, client.Credentials{URL: "http://127.0.0.1:7700", APIKey: "bothy_mine"})
	a := newApp(os.Stdin, io.Discard, io.Discard)
	server := &serverFile{Listen: "127.0.0.1:7700"}

	path, err := a.publishCredentials(t.Context(), server)
	if err != nil || path != adminPath() {
		t.Errorf("the key is said to be in %s, %v", path, err)
	}
	if c, _ := readCredentials(credentialsPath(t)); c != theirs {
		t.Errorf("the file became %v", c)
	}

	other.Close()
	path, err = a.publishCredentials(t.Context(), server)
	if err != nil || path != credentialsPath(t) {
		t.Errorf("the other server is gone, but the key is said to be in %s, %v", path, err)
	}
	if c, _ := readCredentials(credentialsPath(t)); c.APIKey != "bothy_mine" {
		t.Errorf("the file holds %v", c)
	}
	if c, _ := readCredentials(credentialsPath(t) + oldSuffix); c != theirs {
		t.Errorf("what it held was not kept: %v", c)
	}
	if info, err := os.Stat(credentialsPath(t) + oldSuffix); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("what it held is kept as %v, %v", info, err)
	}
}

// A user may have stored a key with fewer rights.
func TestKeyOfTheSameServerIsLeftAlone(t *testing.T) {
	world := httptest.NewServer(newWorld(t).Handler())
	defer world.Close()
	theirs := client.Credentials{URL: world.URL, APIKey: pretend.ReadKey}
	stored(t, theirs)
	t.Setenv("BOTHY_HOME", t.TempDir())
	writeAdmin(t, client.Credentials{URL: world.URL, APIKey: pretend.Key})
	a := newApp(os.Stdin, io.Discard, io.Discard)
	path, err := a.publishCredentials(t.Context(), &serverFile{Listen: strings.TrimPrefix(world.URL, "http://")})
	if err != nil || path != credentialsPath(t) {
		t.Errorf("the key is said to be in %s, %v", path, err)
	}
	if c, _ := readCredentials(path); c != theirs {
		t.Errorf("the file became %v", c)
	}
}

func writeAdmin(t *testing.T, c client.Credentials) {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(adminPath(), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestUserBehindSudoCannotLeadTheKeyAstray(t *testing.T) {
	outside := t.TempDir()
	dir := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, ".config")); err != nil {
		t.Fatal(err)
	}
	home, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	if err := writeAs(home, os.Getuid(), os.Getgid(), client.Credentials{APIKey: "bothy_secret"}); err == nil {
		t.Error("a link out of the home was followed")
	}
	if left, _ := os.ReadDir(outside); len(left) != 0 {
		t.Errorf("written outside of the home: %v", left)
	}
}

func TestUserBehindSudoOwnsTheFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	home, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	if err := writeAs(home, 12345, 12345, client.Credentials{APIKey: "bothy_secret"}); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{".config": 0o700, ".config/bothy": 0o700, credentialsName: 0o600} {
		info, err := home.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if owner := info.Sys().(*syscall.Stat_t).Uid; owner != 12345 || info.Mode().Perm() != mode {
			t.Errorf("%s belongs to %d with mode %v", name, owner, info.Mode())
		}
	}
}
