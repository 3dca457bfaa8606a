package session

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/sqlite"
)

var caller = &bothy.Caller{ProjectID: "p", TokenID: "tok_1"}

type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// records is a store of logins.
func records(t *testing.T) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "bothy.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func open(t *testing.T, c *clock) *Store {
	t.Helper()
	return New(records(t), c.now)
}

func (s *Store) login(t *testing.T) string {
	t.Helper()
	secret, _, err := s.Create(t.Context(), caller)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func isOpen(t *testing.T, s *Store, secret string) bool {
	t.Helper()
	x, release, err := s.Hold(t.Context(), secret, func(error) {})
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

func TestLoginIsKnownToAllServersAndExpires(t *testing.T) {
	c, kept := &clock{time.Now()}, records(t)
	secret := New(kept, c.now).login(t)
	s := New(kept, c.now)
	if !isOpen(t, s, secret) || isOpen(t, s, secret+"x") || isOpen(t, s, "") {
		t.Fatal("the login is not the one that it was")
	}
	if _, err := kept.Login(t.Context(), secret); bothy.ErrorCode(err) != bothy.CodeNotFound {
		t.Fatalf("the secret itself is kept: %v", err)
	}
	c.at = c.at.Add(Life)
	if isOpen(t, s, secret) {
		t.Fatal("the login has not expired")
	}
	if len(s.holders) != 0 {
		t.Errorf("%d logins are held", len(s.holders))
	}
}

func TestLoginsOfAFileAreTakenOver(t *testing.T) {
	c := &clock{time.Now()}
	s := open(t, c)
	path := filepath.Join(t.TempDir(), "sessions.json")
	if err := s.TakeFile(t.Context(), path); err != nil {
		t.Fatalf("without a file: %v", err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("[")
	if err := s.TakeFile(t.Context(), path); err == nil {
		t.Fatal("a broken file was taken")
	}
	at := func(d time.Duration) string { return c.at.Add(d).UTC().Format(time.RFC3339Nano) }
	write(`[{"hash":"` + hash("mine") + `","project":"p","token":"tok_1","created_at":"` + at(-time.Hour) + `","expires_at":"` + at(time.Hour) + `"}]`)
	if err := s.TakeFile(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file is there: %v", err)
	}
	if !isOpen(t, s, "mine") {
		t.Fatal("the login has ended")
	}
}

func TestLoginExpiresWithItsKey(t *testing.T) {
	c := &clock{time.Now()}
	s := open(t, c)
	at := c.at.Add(time.Minute)
	secret, _, err := s.Create(t.Context(), &bothy.Caller{ProjectID: "p", TokenID: "tok_1", ExpiresAt: &at})
	if err != nil {
		t.Fatal(err)
	}
	c.at = at
	if isOpen(t, s, secret) {
		t.Fatal("it outlives its key")
	}
}

// told collects notifications of a holder.
type told chan error

func (s *Store) hold(t *testing.T, secret string) told {
	t.Helper()
	c := make(told, 10)
	if _, _, err := s.Hold(t.Context(), secret, func(err error) { c <- err }); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c told) await(t *testing.T) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatal("there was no notification")
	}
}

func TestLogoutEndsRequestsEverywhere(t *testing.T) {
	c, kept := &clock{time.Now()}, records(t)
	s, elsewhere := New(kept, c.now), New(kept, c.now)
	secret, other := s.login(t), s.login(t)
	here, there, stays := s.hold(t, secret), elsewhere.hold(t, secret), elsewhere.hold(t, other)
	if err := s.Delete(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	here.await(t)
	if isOpen(t, elsewhere, secret) {
		t.Fatal("the other host still takes it")
	}
	if err := elsewhere.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	there.await(t)
	if len(stays) != 0 || !isOpen(t, s, other) {
		t.Fatal("not the login alone has ended")
	}
}

func TestCodeIsUsedOnceAndSoon(t *testing.T) {
	c, kept := &clock{time.Now()}, records(t)
	s, elsewhere := New(kept, c.now), New(kept, c.now)
	code := func() string {
		t.Helper()
		code, _, err := s.NewCode(t.Context(), caller)
		if err != nil {
			t.Fatal(err)
		}
		return code
	}
	one := code()
	if isOpen(t, s, one) {
		t.Fatal("a code is no login")
	}
	if x, err := elsewhere.Redeem(t.Context(), one); err != nil || x.TokenID != caller.TokenID {
		t.Fatal(x, err)
	}
	if _, err := s.Redeem(t.Context(), one); bothy.ErrorCode(err) != bothy.CodeUnauthenticated {
		t.Fatalf("it was used twice: %v", err)
	}
	old := code()
	c.at = c.at.Add(CodeLife)
	if _, err := s.Redeem(t.Context(), old); bothy.ErrorCode(err) != bothy.CodeUnauthenticated {
		t.Fatalf("an old code was taken: %v", err)
	}
	login := s.login(t)
	if _, err := s.Redeem(t.Context(), login); bothy.ErrorCode(err) != bothy.CodeUnauthenticated {
		t.Fatalf("a login is no code: %v", err)
	}
}

func TestLoginsAreBounded(t *testing.T) {
	c := &clock{time.Now()}
	s := open(t, c)
	first := s.login(t)
	ends := s.hold(t, first)
	var last string
	for range maxPerToken {
		c.at = c.at.Add(time.Second)
		last = s.login(t)
	}
	ends.await(t)
	if isOpen(t, s, first) || !isOpen(t, s, last) {
		t.Fatal("not the oldest has given way")
	}
}

func TestAnUnavailableStoreEndsNoLogin(t *testing.T) {
	c, kept := &clock{time.Now()}, records(t)
	s := New(kept, c.now)
	secret := s.login(t)
	held := s.hold(t, secret)
	kept.Close()
	if _, _, err := s.Hold(t.Context(), secret, func(error) {}); err == nil || bothy.ErrorCode(err) == bothy.CodeUnauthenticated {
		t.Errorf("it is %v", err)
	}
	if _, err := s.Redeem(t.Context(), secret); err == nil || bothy.ErrorCode(err) == bothy.CodeUnauthenticated {
		t.Errorf("a code is %v", err)
	}
	if err := s.Refresh(t.Context()); err == nil || len(held) != 0 {
		t.Errorf("%v, %d were notified", err, len(held))
	}
}

var _ Logins = store.Store(nil)
