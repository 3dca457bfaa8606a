// Package session keeps the logins of browsers. A login names the key that made it and
// holds none of its rights: who asks with one is looked up by that key each time, so it
// ends with the key. Only hashes of what browsers hold are kept.
package session

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/secretfile"
)

const (
	// Life is how long a login lasts at most.
	Life = 12 * time.Hour
	// CodeLife is how long a code for a login can be used, once.
	CodeLife = time.Minute
	// maxSessions and maxPerToken bound what is kept; the oldest give way.
	maxSessions = 10000
	maxPerToken = 50
)

// A Session is one login.
type Session struct {
	Hash      string    `json:"hash"`
	ProjectID string    `json:"project"`
	TokenID   string    `json:"token"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

type held struct {
	end   func(error)
	timer *time.Timer
}

// Store is the logins of a server.
type Store struct {
	path string
	now  func() time.Time

	mu       sync.Mutex
	sessions map[string]Session
	codes    map[string]Session // by hash; they do not outlive the process
	holders  map[string]map[*held]struct{}
}

// Open reads the logins in a file, which need not exist. With an empty path they are
// kept in memory only.
func Open(path string, now func() time.Time) (*Store, error) {
	s := &Store{path: path, now: now, sessions: map[string]Session{}, codes: map[string]Session{}, holders: map[string]map[*held]struct{}{}}
	if path == "" {
		return s, nil
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	var list []Session
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("the logins in %s cannot be read; delete the file to end them all: %w", path, err)
	}
	for _, x := range list {
		s.sessions[x.Hash] = x
	}
	s.prune()
	return s, nil
}

// Create makes a login for the holder of a key. The secret is for the browser.
func (s *Store) Create(caller *bothy.Caller) (secret string, _ Session, err error) {
	secret = random()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
	for s.count(caller.TokenID) >= maxPerToken {
		s.drop(s.oldest(caller.TokenID), ended("another took its place"))
	}
	for len(s.sessions) >= maxSessions {
		s.drop(s.oldest(""), ended("another took its place"))
	}
	x := s.fresh(secret, caller, Life)
	s.sessions[x.Hash] = x
	if err := s.save(); err != nil {
		delete(s.sessions, x.Hash)
		return "", Session{}, err
	}
	return secret, x, nil
}

func (s *Store) fresh(secret string, caller *bothy.Caller, life time.Duration) Session {
	now := s.now().UTC()
	x := Session{Hash: hash(secret), ProjectID: caller.ProjectID, TokenID: caller.TokenID, CreatedAt: now, ExpiresAt: now.Add(life)}
	if at := caller.ExpiresAt; at != nil && at.Before(x.ExpiresAt) {
		x.ExpiresAt = at.UTC()
	}
	return x
}

// Hold finds a login, and has end called when it ends before release is.
func (s *Store) Hold(secret string, end func(error)) (_ Session, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, err := s.find(secret)
	if err != nil {
		return Session{}, nil, err
	}
	h := &held{end: end}
	h.timer = time.AfterFunc(x.ExpiresAt.Sub(s.now()), func() { end(ended("it expired")) })
	if s.holders[x.Hash] == nil {
		s.holders[x.Hash] = map[*held]struct{}{}
	}
	s.holders[x.Hash][h] = struct{}{}
	return x, func() { s.letGo(x.Hash, h) }, nil
}

func (s *Store) letGo(hash string, h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.timer.Stop()
	delete(s.holders[hash], h)
	if len(s.holders[hash]) == 0 {
		delete(s.holders, hash)
	}
}

func (s *Store) find(secret string) (Session, error) {
	sum := hash(secret)
	x, ok := s.sessions[sum]
	// The look-up is by the hash; this keeps the decision itself free of timing.
	if !ok || subtle.ConstantTimeCompare([]byte(x.Hash), []byte(sum)) != 1 {
		return Session{}, ended("it is not known here")
	}
	if !s.now().Before(x.ExpiresAt) {
		return Session{}, ended("it expired")
	}
	return x, nil
}

// Delete ends a login, and what is under way in its name. One that is not known has
// ended already.
func (s *Store) Delete(secret string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, err := s.find(secret)
	if err != nil {
		return nil
	}
	s.drop(x.Hash, ended("it was logged out"))
	return s.save()
}

// drop tells the holders in their own time: they may let go, which wants the lock.
func (s *Store) drop(hash string, cause error) {
	delete(s.sessions, hash)
	for h := range s.holders[hash] {
		go h.end(cause)
	}
}

// NewCode makes a code with which a browser can log in once, within CodeLife.
func (s *Store) NewCode(caller *bothy.Caller) (string, time.Time) {
	code := random()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
	x := s.fresh(code, caller, CodeLife)
	s.codes[x.Hash] = x
	return code, x.ExpiresAt
}

// Redeem uses a code up and says whose it was.
func (s *Store) Redeem(code string) (Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := hash(code)
	x, ok := s.codes[sum]
	delete(s.codes, sum)
	if !ok || !s.now().Before(x.ExpiresAt) {
		return Session{}, bothy.Errorf(bothy.CodeUnauthenticated, "this link to the console was used already, or is older than a minute").
			WithHint("Run `bothy console` again, or log in with an API key.")
	}
	return x, nil
}

func (s *Store) prune() {
	now := s.now()
	for _, m := range []map[string]Session{s.sessions, s.codes} {
		for k, x := range m {
			if !now.Before(x.ExpiresAt) {
				delete(m, k)
			}
		}
	}
}

func (s *Store) count(token string) (n int) {
	for _, x := range s.sessions {
		if x.TokenID == token {
			n++
		}
	}
	return n
}

func (s *Store) oldest(token string) (key string) {
	for k, x := range s.sessions {
		if (token == "" || x.TokenID == token) && (key == "" || x.CreatedAt.Before(s.sessions[key].CreatedAt)) {
			key = k
		}
	}
	return key
}

// save puts the file in the place of the last one whole.
func (s *Store) save() error {
	if s.path == "" {
		return nil
	}
	list := make([]Session, 0, len(s.sessions))
	for _, x := range s.sessions {
		list = append(list, x)
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return secretfile.Write(s.path, text)
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
