// Package access authenticates callers: it creates, finds and revokes API keys.
// server gives it a store and passes it to the APIs (api, mcp, e2b), which
// authenticate every request with it.
package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/random"
	"github.com/bothy-dev/bothy/store"
)

// The forms of keys. What follows the prefix is random, in hex.
const (
	KeyPrefix    = "bothy_"
	E2BKeyPrefix = "e2b_"
	keyBytes     = 32
	e2bKeyBytes  = 20
)

// DefaultScopes are those of a token whose request names none.
var DefaultScopes = []bothy.Scope{bothy.ScopeSandboxesRead, bothy.ScopeSandboxesWrite, bothy.ScopeTemplatesRead}

const (
	maxNameLength = 100
	// MaxKeys is how many keys a project may make. Expired ones do not count, and the operator
	// has no limit.
	MaxKeys = 1000
	// touchEvery is the resolution of the time of a token's last use. Recording every use would
	// make every read a write.
	touchEvery = time.Minute
)

var projectName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// Store is what this package needs of store.Store.
type Store interface {
	PutToken(ctx context.Context, t *store.Token) error
	TokenByHash(ctx context.Context, hash string) (*store.Token, error)
	// TokenHashes lists the hashes of all keys.
	TokenHashes(ctx context.Context) ([]string, error)
	Tokens(ctx context.Context, projectID string) ([]*store.Token, error)
	DeleteToken(ctx context.Context, projectID, id string) error
	TouchToken(ctx context.Context, id string, usedAt time.Time) error
}

// Tokens is the bothy.TokenService over a store. This process must be the only one that changes
// the tokens in it: most authentications are answered from a cache. If others change them as
// well (WithShared), Refresh must be called every few seconds.
type Tokens struct {
	store Store
	now   func() time.Time
	log   *slog.Logger
	cache cache
	// hashes are those of all keys, once they have been read. They may include hashes of revoked
	// keys.
	hashesMu sync.RWMutex
	hashes   map[string]struct{}
	// loaded is when they were read, if other servers make keys as well.
	shared bool
	loaded time.Time
	// projects is optional.
	projects *Projects
	holders  holders
	// making is held while a project makes a key, so that they are counted.
	making sync.Mutex
}

var (
	_ bothy.TokenService = (*Tokens)(nil)
	_ bothy.KeyHolder    = (*Tokens)(nil)
)

// Option changes a Tokens.
type Option func(*Tokens)

// WithNow sets the clock.
func WithNow(now func() time.Time) Option { return func(t *Tokens) { t.now = now } }

// WithProjects restricts keys to existing projects.
func WithProjects(p *Projects) Option { return func(t *Tokens) { t.projects = p } }

// WithLog sets the log for failures that do not concern a caller.
func WithLog(l *slog.Logger) Option { return func(t *Tokens) { t.log = l } }

// New returns the tokens in a store.
func New(s Store, opts ...Option) *Tokens {
	t := &Tokens{store: s, now: time.Now, log: slog.Default()}
	for _, o := range opts {
		o(t)
	}
	return t
}

// Authenticate implements bothy.TokenService.
func (t *Tokens) Authenticate(ctx context.Context, key string) (*bothy.Caller, error) {
	token, err := t.authenticate(ctx, key)
	if err != nil {
		return nil, err
	}
	return callerOf(token), nil
}

func callerOf(t *store.Token) *bothy.Caller {
	return &bothy.Caller{ProjectID: t.ProjectID, TokenID: t.ID, TokenName: t.Name, Scopes: t.Scopes, ExpiresAt: t.ExpiresAt}
}

func (t *Tokens) authenticate(ctx context.Context, key string) (*store.Token, error) {
	if !plausible(key) {
		return nil, unknownKey()
	}
	hash := Hash(key)
	e, err := t.find(ctx, hash)
	if err != nil {
		return nil, err
	}
	// The look-up already found an equal hash; comparing again keeps the decision itself free of
	// timing, whatever the look-up does.
	if subtle.ConstantTimeCompare([]byte(e.token.Hash), []byte(hash)) != 1 {
		return nil, unknownKey()
	}
	now := t.now()
	if at := e.token.ExpiresAt; at != nil && !now.Before(*at) {
		return nil, expiredKey(*at)
	}
	if e.due(now) {
		if err := t.store.TouchToken(context.WithoutCancel(ctx), e.token.ID, now); err != nil {
			t.log.Warn("the use of a token was not noted", "token", e.token.ID, "error", err)
		}
	}
	return e.token, nil
}

func (t *Tokens) find(ctx context.Context, hash string) (*entry, error) {
	e, generation := t.cache.get(hash)
	if e != nil {
		return e, nil
	}
	if known, err := t.known(ctx, hash); err != nil {
		return nil, err
	} else if !known {
		return nil, unknownKey()
	}
	token, err := t.store.TokenByHash(ctx, hash)
	if bothy.ErrorCode(err) == bothy.CodeNotFound {
		return nil, unknownKey()
	}
	if err != nil {
		return nil, err
	}
	return t.cache.add(generation, token), nil
}

// known reports whether there can be a key with this hash, without asking the store: guessed
// keys must not slow down callers with a real one.
func (t *Tokens) known(ctx context.Context, hash string) (bool, error) {
	asked := t.now()
	t.hashesMu.RLock()
	_, known := t.hashes[hash]
	done := t.hashes != nil && (known || !t.shared)
	early := t.loaded.Add(loadAgain).Sub(asked)
	t.hashesMu.RUnlock()
	if done {
		return known, nil
	}
	if t.shared && early > 0 {
		// Another server may have made it just after the hashes were read.
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(early):
		}
	}
	t.hashesMu.Lock()
	defer t.hashesMu.Unlock()
	if t.hashes == nil || t.shared && !t.loaded.After(asked) {
		at := t.now()
		all, err := t.store.TokenHashes(context.WithoutCancel(ctx))
		if err != nil {
			return false, err
		}
		t.hashes = make(map[string]struct{}, len(all))
		for _, h := range all {
			t.hashes[h] = struct{}{}
		}
		t.loaded = at
	}
	_, known = t.hashes[hash]
	return known, nil
}

// put stores a new token, whose hash is known from then on.
func (t *Tokens) put(ctx context.Context, token *store.Token) error {
	t.hashesMu.Lock()
	defer t.hashesMu.Unlock()
	if err := t.store.PutToken(ctx, token); err != nil {
		return err
	}
	if t.hashes != nil {
		t.hashes[token.Hash] = struct{}{}
	}
	return nil
}

// CreateToken implements bothy.TokenService. Without a project in the request, the token is for
// the caller's own. Only the default project, which is the operator's, makes tokens for others.
func (t *Tokens) CreateToken(ctx context.Context, req bothy.TokenCreate) (*bothy.Token, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return nil, err
	}
	if req.ProjectID == "" {
		req.ProjectID = caller.ProjectID
	}
	if err := t.check(req); err != nil {
		return nil, err
	}
	if req.ProjectID != caller.ProjectID && !caller.IsOperator() {
		return nil, bothy.Errorf(bothy.CodeNotFound, "there is no project %q", req.ProjectID).
			WithHint("Leave the project out to make a key for your own.")
	}
	if t.projects != nil && req.ProjectID != caller.ProjectID {
		if _, err := t.projects.store.Project(ctx, req.ProjectID); err != nil {
			return nil, err
		}
	}
	if !caller.IsOperator() {
		t.making.Lock()
		defer t.making.Unlock()
		if err := t.roomFor(ctx, req.ProjectID); err != nil {
			return nil, err
		}
	}
	key := newKey(req.E2B)
	token := bothy.Token{
		ID: "tok_" + random.Hex(8), Name: req.Name, ProjectID: req.ProjectID, Scopes: scopes(req.Scopes),
		CreatedAt: t.now().UTC(), ExpiresAt: req.ExpiresAt,
	}
	if err := t.put(ctx, &store.Token{Token: token, Hash: Hash(key)}); err != nil {
		return nil, err
	}
	token.Key = key
	return &token, nil
}

// roomFor refuses another key for a project that has too many. Expired ones make room first.
func (t *Tokens) roomFor(ctx context.Context, project string) error {
	all, err := t.store.Tokens(ctx, project)
	if err != nil || len(all) < MaxKeys {
		return err
	}
	now, left := t.now(), len(all)
	for _, token := range all {
		if at := token.ExpiresAt; at == nil || now.Before(*at) {
			continue
		}
		if err := t.store.DeleteToken(ctx, project, token.ID); err != nil && bothy.ErrorCode(err) != bothy.CodeNotFound {
			return err
		}
		t.cache.drop(token.ID)
		left--
	}
	if left < MaxKeys {
		return nil
	}
	return bothy.Errorf(bothy.CodeQuota, "the project %s has %d API keys, which is the most", project, left).
		WithHint("List them with `bothy token ls`, and revoke those that are no longer used with `bothy token rm`.")
}

// CreateFirst makes the token that a new server's owner starts with: for the default project,
// with every scope. It checks no caller, so only the process that owns the store can call it.
func (t *Tokens) CreateFirst(ctx context.Context, name string) (*bothy.Token, error) {
	owner := &bothy.Caller{ProjectID: bothy.DefaultProject, Scopes: []bothy.Scope{bothy.ScopeAdmin}}
	return t.CreateToken(bothy.WithCaller(ctx, owner), bothy.TokenCreate{Name: name, Scopes: bothy.AllScopes})
}

func (t *Tokens) check(req bothy.TokenCreate) error {
	if utf8.RuneCountInString(req.Name) > maxNameLength {
		return bothy.Errorf(bothy.CodeInvalid, "name has %d characters", utf8.RuneCountInString(req.Name)).
			WithHint("Give a name of at most %d characters.", maxNameLength)
	}
	if !projectName.MatchString(req.ProjectID) {
		return badProjectName(req.ProjectID)
	}
	for _, s := range req.Scopes {
		if !slices.Contains(bothy.AllScopes, s) {
			return bothy.Errorf(bothy.CodeInvalid, "scopes: %q is not a scope", s).
				WithHint("The scopes are %s.", joinScopes(bothy.AllScopes))
		}
	}
	if at := req.ExpiresAt; at != nil && !at.After(t.now()) {
		return bothy.Errorf(bothy.CodeInvalid, "expires_at %s is in the past", at.Format(time.RFC3339)).
			WithHint("Give a time in the future, or none for a key that does not expire.")
	}
	return nil
}

func scopes(asked []bothy.Scope) []bothy.Scope {
	if len(asked) == 0 {
		return slices.Clone(DefaultScopes)
	}
	out := slices.Clone(asked)
	slices.Sort(out)
	return slices.Compact(out)
}

func joinScopes(s []bothy.Scope) string {
	parts := make([]string, len(s))
	for i, v := range s {
		parts[i] = string(v)
	}
	return strings.Join(parts, ", ")
}

// reach returns the projects whose tokens a caller may see and revoke: its own, and all for the
// operator.
func (t *Tokens) reach(ctx context.Context, caller *bothy.Caller) ([]string, error) {
	list := []string{caller.ProjectID}
	if !caller.IsOperator() || t.projects == nil {
		return list, nil
	}
	all, err := t.projects.Projects(ctx)
	for _, p := range all {
		if p.ID != caller.ProjectID {
			list = append(list, p.ID)
		}
	}
	return list, err
}

// Tokens implements bothy.TokenService.
func (t *Tokens) Tokens(ctx context.Context) ([]*bothy.Token, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return nil, err
	}
	projects, err := t.reach(ctx, caller)
	if err != nil {
		return nil, err
	}
	var all []*bothy.Token
	for _, p := range projects {
		rows, err := t.store.Tokens(ctx, p)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			all = append(all, &row.Token)
		}
	}
	return all, nil
}

// DeleteToken implements bothy.TokenService. When it returns, the key no longer
// works, and requests that use it have been told.
func (t *Tokens) DeleteToken(ctx context.Context, id string) error {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return err
	}
	projects, err := t.reach(ctx, caller)
	if err != nil {
		return err
	}
	for _, p := range projects {
		if err = t.store.DeleteToken(ctx, p, id); bothy.ErrorCode(err) != bothy.CodeNotFound {
			break
		}
	}
	if err != nil {
		return err
	}
	t.cache.drop(id)
	t.holders.end(revokedKey(), id)
	return nil
}

// Hash returns the stored form of a key. A key is random and long, so a plain hash is as safe as
// a slow one.
func Hash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

func newKey(e2b bool) string {
	if e2b {
		return E2BKeyPrefix + random.Hex(e2bKeyBytes)
	}
	return KeyPrefix + random.Hex(keyBytes)
}

// plausible distinguishes keys from other strings, so that a wrong header costs no look-up.
func plausible(key string) bool {
	for prefix, size := range map[string]int{KeyPrefix: keyBytes, E2BKeyPrefix: e2bKeyBytes} {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			return len(rest) == 2*size
		}
	}
	return false
}

func unknownKey() error {
	return bothy.Errorf(bothy.CodeUnauthenticated, "this API key is not known here").
		WithHint("Check BOTHY_API_KEY or ~/.config/bothy/credentials.json, or make a key with `bothy token create`; a revoked key does not come back.")
}
