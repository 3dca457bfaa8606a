package apitest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// The keys of the fake.
const (
	Admin    = "key-admin"
	Writer   = "key-writer"   // sandboxes read and write, templates read and write
	Reader   = "key-reader"   // sandboxes and templates read
	Nobody   = "key-nobody"   // no scope at all
	Stranger = "key-stranger" // everything, in another project
	Expired  = "key-expired"
)

// Tokens is a bothy.TokenService.
type Tokens struct {
	mu     sync.Mutex
	keys   map[string]*bothy.Caller
	tokens []*bothy.Token
	held   map[string][]func(error)
	// Created is the last request for a token.
	Created bothy.TokenCreate
}

// NewTokens makes the keys above.
func NewTokens() *Tokens {
	caller := func(project, id string, scopes ...bothy.Scope) *bothy.Caller {
		return &bothy.Caller{ProjectID: project, TokenID: id, Scopes: scopes}
	}
	return &Tokens{keys: map[string]*bothy.Caller{
		Admin: caller("default", "tok_admin", bothy.ScopeAdmin),
		Writer: caller("default", "tok_writer", bothy.ScopeSandboxesRead, bothy.ScopeSandboxesWrite,
			bothy.ScopeTemplatesRead, bothy.ScopeTemplatesWrite),
		Reader:   caller("default", "tok_reader", bothy.ScopeSandboxesRead, bothy.ScopeTemplatesRead),
		Nobody:   caller("default", "tok_nobody"),
		Stranger: caller("other", "tok_stranger", bothy.AllScopes...),
	}}
}

// Add adds a key for everything.
func (t *Tokens) Add(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys[key] = &bothy.Caller{ProjectID: bothy.DefaultProject, TokenID: fmt.Sprintf("tok_added_%d", len(t.keys)), Scopes: bothy.AllScopes}
}

// Authenticate implements bothy.TokenService.
func (t *Tokens) Authenticate(_ context.Context, key string) (*bothy.Caller, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if key == Expired {
		return nil, bothy.Errorf(bothy.CodeTokenExpired, "this API key expired").WithHint("Make a new one.")
	}
	if c := t.keys[key]; c != nil {
		return c, nil
	}
	return nil, bothy.Errorf(bothy.CodeUnauthenticated, "this API key is not known here").WithHint("Make one.")
}

// Hold implements bothy.KeyHolder. Nothing is ever released.
func (t *Tokens) Hold(ctx context.Context, key string, end func(error)) (*bothy.Caller, func(), error) {
	c, err := t.Authenticate(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.held == nil {
		t.held = map[string][]func(error){}
	}
	t.held[c.TokenID] = append(t.held[c.TokenID], end)
	return c, func() {}, nil
}

// End ends everything that holds a token, for the given reason, and its key.
func (t *Tokens) End(id string, cause error) {
	t.mu.Lock()
	ends := t.held[id]
	delete(t.held, id)
	for key, c := range t.keys {
		if c.TokenID == id {
			delete(t.keys, key)
		}
	}
	t.mu.Unlock()
	for _, end := range ends {
		end(cause)
	}
}

// CreateToken implements bothy.TokenService.
func (t *Tokens) CreateToken(ctx context.Context, req bothy.TokenCreate) (*bothy.Token, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Created = req
	id := fmt.Sprintf("tok_%d", len(t.tokens)+1)
	token := &bothy.Token{ID: id, Name: req.Name, ProjectID: caller.ProjectID, Scopes: req.Scopes, CreatedAt: Epoch, ExpiresAt: req.ExpiresAt}
	t.tokens = append(t.tokens, token)
	t.keys["key-"+id] = &bothy.Caller{ProjectID: caller.ProjectID, TokenID: id, Scopes: req.Scopes}
	shown := *token
	shown.Key = "key-" + id
	return &shown, nil
}

// Tokens implements bothy.TokenService.
func (t *Tokens) Tokens(ctx context.Context) ([]*bothy.Token, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeAdmin); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]*bothy.Token(nil), t.tokens...), nil
}

// DeleteToken implements bothy.TokenService.
func (t *Tokens) DeleteToken(ctx context.Context, id string) error {
	if _, err := bothy.Require(ctx, bothy.ScopeAdmin); err != nil {
		return err
	}
	t.mu.Lock()
	i := slices.IndexFunc(t.tokens, func(k *bothy.Token) bool { return k.ID == id })
	if i < 0 {
		t.mu.Unlock()
		return bothy.Errorf(bothy.CodeNotFound, "there is no token %q", id).WithHint("List them.")
	}
	t.tokens = slices.Delete(t.tokens, i, i+1)
	t.mu.Unlock()
	t.End(id, bothy.Errorf(bothy.CodeUnauthenticated, "this API key was revoked").WithHint("Make a new key."))
	return nil
}

// Answers remembers answers in memory.
type Answers struct {
	mu   sync.Mutex
	kept map[string]*store.Answer
	lost map[string]bool
	// failures is how many answers cannot be stored.
	failures int
}

// Lose has the server die that works on the next request of ReserveOnce with a key.
func (a *Answers) Lose(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost = map[string]bool{key: true}
}

// FailToStore has the next answers not be stored.
func (a *Answers) FailToStore(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failures = n
}

// ReserveAnswer is as in store.Store.
func (a *Answers) ReserveAnswer(_ context.Context, project, key, fingerprint string) (*store.Answer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if have := a.kept[project+"\x00"+key]; have != nil {
		c := *have
		return &c, nil
	}
	if a.kept == nil {
		a.kept = map[string]*store.Answer{}
	}
	a.kept[project+"\x00"+key] = &store.Answer{Fingerprint: fingerprint, CreatedAt: time.Now()}
	return nil, nil
}

// ReserveOnce is as in store.Store.
func (a *Answers) ReserveOnce(ctx context.Context, project, key, fingerprint string) (*store.Answer, error) {
	a.mu.Lock()
	lost := a.lost[key]
	a.mu.Unlock()
	if lost {
		return &store.Answer{Fingerprint: fingerprint, Dropped: true, Unknown: true}, nil
	}
	return a.ReserveAnswer(ctx, project, key, fingerprint)
}

// StoreAnswer is as in store.Store.
func (a *Answers) StoreAnswer(_ context.Context, project, key string, given store.Answer) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failures > 0 {
		a.failures--
		return errors.New("the answer cannot be stored")
	}
	have := a.kept[project+"\x00"+key]
	if have == nil {
		return fmt.Errorf("the key %q is not reserved", key)
	}
	given.Fingerprint, given.CreatedAt = have.Fingerprint, have.CreatedAt
	a.kept[project+"\x00"+key] = &given
	return nil
}

// ForgetAnswer is as in store.Store.
func (a *Answers) ForgetAnswer(_ context.Context, project, key string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.kept, project+"\x00"+key)
	return nil
}

// Everything returns what the answers hold, for tests that look for secrets.
func (a *Answers) Everything() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := ""
	for k, v := range a.kept {
		out += fmt.Sprintf("%q %q %s\n", k, v.Header, v.Body)
	}
	return out
}
