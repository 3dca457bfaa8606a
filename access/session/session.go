// Package session keeps browser logins. A login refers to the key that created it and
// has no rights of its own: each request with it is authenticated by that key, so it
// ends with the key. Only hashes of cookies are kept.
package session

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

const (
	// Life is how long a login lasts at most.
	Life = 12 * time.Hour
	// CodeLife is how long a code for a login can be used, once.
	CodeLife = time.Minute
	// maxSessions and maxPerToken limit the stored logins; the oldest are dropped.
	maxSessions = 10000
	maxPerToken = 50
)

// A Session is one login.
type Session = store.Login

// Logins is the part of store.Store that stores logins.
type Logins interface {
	AddLogin(ctx context.Context, l *store.Login, b store.LoginBounds) error
	Login(ctx context.Context, hash string) (*store.Login, error)
	TakeLogin(ctx context.Context, hash string) (*store.Login, error)
	HaveLogins(ctx context.Context, hashes []string) ([]string, error)
	DeleteLogin(ctx context.Context, hash string) error
}

type held struct {
	end   func(error)
	timer *time.Timer
}

// Store manages logins.
type Store struct {
	logins Logins
	now    func() time.Time

	mu      sync.Mutex
	holders map[string]map[*held]struct{} // by hash
}

// New returns a Store that keeps its logins in another.
func New(logins Logins, now func() time.Time) *Store {
	return &Store{logins: logins, now: now, holders: map[string]map[*held]struct{}{}}
}

// fileLogin is a login in the file that earlier servers used instead of the store.
type fileLogin struct {
	Hash      string    `json:"hash"`
	ProjectID string    `json:"project"`
	TokenID   string    `json:"token"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// TakeFile imports the logins from the file of an earlier server, if there is one, and deletes
// the file.
func (s *Store) TakeFile(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var list []fileLogin
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("the logins in %s cannot be read; delete the file to end them all: %w", path, err)
	}
	slices.SortFunc(list, func(a, b fileLogin) int { return a.CreatedAt.Compare(b.CreatedAt) })
	for _, l := range list {
		x := Session{Hash: l.Hash, ProjectID: l.ProjectID, TokenID: l.TokenID, CreatedAt: l.CreatedAt, ExpiresAt: l.ExpiresAt}
		if err := s.add(ctx, &x); err != nil {
			return err
		}
	}
	return os.Remove(path)
}

// Create makes a login for the holder of a key. The secret is for the browser.
func (s *Store) Create(ctx context.Context, caller *bothy.Caller) (secret string, _ Session, err error) {
	secret = random()
	x := s.fresh(secret, caller, Life)
	if err := s.add(ctx, &x); err != nil {
		return "", Session{}, err
	}
	// Older logins may have been dropped for it.
	return secret, x, s.Refresh(ctx)
}

func (s *Store) add(ctx context.Context, x *Session) error {
	return s.logins.AddLogin(ctx, x, store.LoginBounds{PerToken: maxPerToken, All: maxSessions})
}

func (s *Store) fresh(secret string, caller *bothy.Caller, life time.Duration) Session {
	now := s.now().UTC()
	x := Session{Hash: hash(secret), ProjectID: caller.ProjectID, TokenID: caller.TokenID, CreatedAt: now, ExpiresAt: now.Add(life)}
	if at := caller.ExpiresAt; at != nil && at.Before(x.ExpiresAt) {
		x.ExpiresAt = at.UTC()
	}
	return x
}

// Hold finds a login. If the login ends before release is called, it calls end.
func (s *Store) Hold(ctx context.Context, secret string, end func(error)) (_ Session, release func(), err error) {
	sum := hash(secret)
	h := &held{end: end}
	// It is registered before the look-up, so that a concurrent deletion ends it.
	s.mu.Lock()
	if s.holders[sum] == nil {
		s.holders[sum] = map[*held]struct{}{}
	}
	s.holders[sum][h] = struct{}{}
	s.mu.Unlock()
	release = func() { s.letGo(sum, h) }
	x, err := s.find(ctx, sum)
	if err != nil {
		release()
		return Session{}, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h.timer = time.AfterFunc(x.ExpiresAt.Sub(s.now()), func() { end(ended("it expired")) })
	return x, release, nil
}

func (s *Store) letGo(hash string, h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.timer != nil {
		h.timer.Stop()
	}
	delete(s.holders[hash], h)
	if len(s.holders[hash]) == 0 {
		delete(s.holders, hash)
	}
}

func (s *Store) find(ctx context.Context, sum string) (Session, error) {
	x, err := s.logins.Login(ctx, sum)
	if err != nil && bothy.ErrorCode(err) != bothy.CodeNotFound {
		return Session{}, err
	}
	// The look-up is by hash; comparing in constant time keeps the decision free of timing.
	if err != nil || x.Code || subtle.ConstantTimeCompare([]byte(x.Hash), []byte(sum)) != 1 {
		return Session{}, ended("it is not known here")
	}
	if !s.now().Before(x.ExpiresAt) {
		return Session{}, ended("it expired")
	}
	return *x, nil
}

// Delete ends a login, and its requests in flight here. An unknown login has ended already.
func (s *Store) Delete(ctx context.Context, secret string) error {
	sum := hash(secret)
	if err := s.logins.DeleteLogin(ctx, sum); err != nil {
		return err
	}
	s.drop(sum, ended("it was logged out"))
	return nil
}

// drop notifies the holders from other goroutines: they may call release, which takes the lock.
func (s *Store) drop(hash string, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h := range s.holders[hash] {
		go h.end(cause)
	}
}

// Refresh ends the requests here of logins that have ended on any host.
func (s *Store) Refresh(ctx context.Context) error {
	s.mu.Lock()
	hashes := slices.Collect(maps.Keys(s.holders))
	s.mu.Unlock()
	if len(hashes) == 0 {
		return nil
	}
	known, err := s.logins.HaveLogins(ctx, hashes)
	if err != nil {
		return err
	}
	for _, hash := range hashes {
		if !slices.Contains(known, hash) {
			s.drop(hash, ended("it was logged out, or another took its place"))
		}
	}
	return nil
}

// NewCode returns a code with which a browser can log in once, within CodeLife.
func (s *Store) NewCode(ctx context.Context, caller *bothy.Caller) (string, time.Time, error) {
	code := random()
	x := s.fresh(code, caller, CodeLife)
	x.Code = true
	return code, x.ExpiresAt, s.add(ctx, &x)
}

// Redeem consumes a code and returns whose it was.
func (s *Store) Redeem(ctx context.Context, code string) (Session, error) {
	x, err := s.logins.TakeLogin(ctx, hash(code))
	if err != nil && bothy.ErrorCode(err) != bothy.CodeNotFound {
		return Session{}, err
	}
	if err != nil || !x.Code || !s.now().Before(x.ExpiresAt) {
		return Session{}, bothy.Errorf(bothy.CodeUnauthenticated, "this link to the console was used already, or is older than a minute").
			WithHint("Run `bothy console` again, or log in with an API key.")
	}
	return *x, nil
}

func ended(why string) error {
	return bothy.Errorf(bothy.CodeUnauthenticated, "this login has ended: %s", why).WithHint("Log in again at /console/.")
}

func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func random() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
