package session

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

var caller = &bothy.Caller{ProjectID: "p", TokenID: "tok_1"}

type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func open(t *testing.T, c *clock, path string) *Store {
	t.Helper()
	s, err := Open(path, c.now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func isOpen(t *testing.T, s *Store, secret string) bool {
	t.Helper()
	x, release, err := s.Hold(secret, func(error) {})
	if err != nil {
		if bothy.ErrorCode(err) != bothy.CodeUnauthenticated {
			t.Fatalf("Hold: %v", err)
		}
		return false
	}
	release()
	if x.TokenID != caller.TokenID || x.ProjectID != caller.ProjectID {
		t.Fatalf("it is another's: %+v", x)
	}
	return true
}

func TestLoginOutlivesServerAndExpires(t *testing.T) {
	c, path := &clock{time.Now()}, filepath.Join(t.TempDir(), "sessions.json")
	s := open(t, c, path)
	secret, _, err := s.Create(caller)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil || strings.Contains(string(text), secret) {
		t.Fatalf("the file holds the secret: %s %v", text, err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Fatalf("the file can be read by others: %v", info.Mode())
	}
	s = open(t, c, path)
	if !isOpen(t, s, secret) || isOpen(t, s, secret+"x") || isOpen(t, s, "") {
		t.Fatal("the login is not the one that it was")
	}
	c.at = c.at.Add(Life)
	if isOpen(t, s, secret) {
		t.Fatal("the login has not expired")
	}
}

func TestLoginExpiresWithItsKey(t *testing.T) {
	c := &clock{time.Now()}
	s := open(t, c, "")
	at := c.at.Add(time.Minute)
	secret, _, err := s.Create(&bothy.Caller{ProjectID: "p", TokenID: "tok_1", ExpiresAt: &at})
	if err != nil {
		t.Fatal(err)
	}
	c.at = at
	if isOpen(t, s, secret) {
		t.Fatal("it outlives its key")
	}
}

func TestLogoutEndsWhatIsUnderWay(t *testing.T) {
	c, path := &clock{time.Now()}, filepath.Join(t.TempDir(), "sessions.json")
	s := open(t, c, path)
	secret, _, _ := s.Create(caller)
	other, _, _ := s.Create(caller)
	told := make(chan error, 1)
	if _, _, err := s.Hold(secret, func(err error) { told <- err }); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(secret); err != nil {
		t.Fatal(err)
	}
	select {
	case <-told:
	case <-time.After(time.Minute):
		t.Fatal("nobody was told")
	}
	if isOpen(t, s, secret) || isOpen(t, open(t, c, path), secret) || !isOpen(t, s, other) {
		t.Fatal("not the login alone has ended")
	}
}

func TestCodeIsUsedOnceAndSoon(t *testing.T) {
	c := &clock{time.Now()}
	s := open(t, c, "")
	code, _ := s.NewCode(caller)
	if isOpen(t, s, code) {
		t.Fatal("a code is no login")
	}
	if x, err := s.Redeem(code); err != nil || x.TokenID != caller.TokenID {
		t.Fatal(x, err)
	}
	if _, err := s.Redeem(code); err == nil {
		t.Fatal("it was used twice")
	}
	code, _ = s.NewCode(caller)
	c.at = c.at.Add(CodeLife)
	if _, err := s.Redeem(code); err == nil {
		t.Fatal("an old code was taken")
	}
}

func TestLoginsAreBounded(t *testing.T) {
	c := &clock{time.Now()}
	s := open(t, c, "")
	first, _, _ := s.Create(caller)
	var last string
	for range maxPerToken {
		c.at = c.at.Add(time.Second)
		last, _, _ = s.Create(caller)
	}
	if len(s.sessions) != maxPerToken || isOpen(t, s, first) || !isOpen(t, s, last) {
		t.Fatalf("%d logins", len(s.sessions))
	}
}
