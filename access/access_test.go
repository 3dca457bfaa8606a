package access_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/sqlite"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

type world struct {
	*access.Tokens
	db    *watchedStore
	mu    sync.Mutex
	at    time.Time
	admin context.Context
}

// watchedStore counts calls of the store and can interrupt them.
type watchedStore struct {
	access.Store
	mu        sync.Mutex
	lookUps   int
	touches   int
	onLookUp  func()
	many      []*store.Token
	failTouch error
}

func (w *watchedStore) TokenByHash(ctx context.Context, hash string) (*store.Token, error) {
	t, err := w.Store.TokenByHash(ctx, hash)
	w.mu.Lock()
	w.lookUps++
	f := w.onLookUp
	w.mu.Unlock()
	if f != nil {
		f()
	}
	return t, err
}

func (w *watchedStore) Tokens(ctx context.Context, project string) ([]*store.Token, error) {
	all, err := w.Store.Tokens(ctx, project)
	return append(all, w.many...), err
}

func (w *watchedStore) TouchToken(ctx context.Context, id string, at time.Time) error {
	w.mu.Lock()
	w.touches++
	err := w.failTouch
	w.mu.Unlock()
	if err != nil {
		return err
	}
	return w.Store.TouchToken(ctx, id, at)
}

func newWorld(t testing.TB) *world {
	t.Helper()
	db, err := sqlite.Open(context.Background(), filepath.Join(t.TempDir(), "b.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	w := &world{db: &watchedStore{Store: db}, at: start, admin: as("default", bothy.ScopeAdmin)}
	w.Tokens = access.New(w.db, access.WithNow(w.now), access.WithLog(slog.New(slog.DiscardHandler)))
	return w
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

func (w *world) forward(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = w.at.Add(d)
}

func as(project string, scopes ...bothy.Scope) context.Context {
	return bothy.WithCaller(context.Background(), &bothy.Caller{ProjectID: project, Scopes: scopes})
}

func (w *world) create(t testing.TB, req bothy.TokenCreate) *bothy.Token {
	t.Helper()
	token, err := w.CreateToken(w.admin, req)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func wantCode(t *testing.T, err error, want bothy.Code) {
	t.Helper()
	if got := bothy.ErrorCode(err); got != want {
		t.Fatalf("error %v has code %q, want %q", err, got, want)
	}
}

func TestKeyOpensItsProject(t *testing.T) {
	w := newWorld(t)
	token := w.create(t, bothy.TokenCreate{Name: "ci", ProjectID: "blue"})
	if !regexp.MustCompile(`^bothy_[0-9a-f]{64}$`).MatchString(token.Key) {
		t.Fatalf("key %q", token.Key)
	}
	for range 2 { // from the store, then from the cache
		c, err := w.Authenticate(t.Context(), token.Key)
		if err != nil {
			t.Fatal(err)
		}
		if c.ProjectID != "blue" || c.TokenID != token.ID || !slices.Equal(c.Scopes, access.DefaultScopes) {
			t.Fatalf("the key belongs to %+v", c)
		}
	}
	if w.db.lookUps != 1 {
		t.Fatalf("%d look-ups in the store for two authentications", w.db.lookUps)
	}
}

func TestE2BKey(t *testing.T) {
	w := newWorld(t)
	token := w.create(t, bothy.TokenCreate{E2B: true})
	if !regexp.MustCompile(`^e2b_[0-9a-f]{40}$`).MatchString(token.Key) {
		t.Fatalf("key %q", token.Key)
	}
	if _, err := w.Authenticate(t.Context(), token.Key); err != nil {
		t.Fatal(err)
	}
}

func TestFirstTokenIsAdmin(t *testing.T) {
	w := newWorld(t)
	token, err := w.CreateFirst(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	c, err := w.Authenticate(t.Context(), token.Key)
	if err != nil {
		t.Fatal(err)
	}
	if c.ProjectID != bothy.DefaultProject || !c.Can(bothy.ScopeAdmin) {
		t.Fatalf("the first token is %+v", c)
	}
}

func TestStrangerIsRefused(t *testing.T) {
	w := newWorld(t)
	key := w.create(t, bothy.TokenCreate{}).Key
	for _, k := range []string{
		"", "bothy_", "bothy_" + strings.Repeat("0", 64), key + "0", key[:len(key)-1], strings.ToUpper(key),
		" " + key, strings.TrimPrefix(key, "bothy_"), access.Hash(key), "bothy_" + access.Hash(key), "' OR 1=1 --",
	} {
		_, err := w.Authenticate(t.Context(), k)
		wantCode(t, err, bothy.CodeUnauthenticated)
		if len(k) > 10 && strings.Contains(err.Error(), k) {
			t.Errorf("the error repeats the key: %v", err)
		}
	}
}

func TestKeyIsNotStored(t *testing.T) {
	w := newWorld(t)
	token := w.create(t, bothy.TokenCreate{})
	list, err := w.Tokens.Tokens(w.admin)
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	row, err := w.db.TokenByHash(t.Context(), access.Hash(token.Key))
	if err != nil || list[0].Key != "" || list[0].ID != token.ID || row.ID != token.ID || row.Key != "" {
		t.Fatalf("the list shows %+v, and %+v is stored, %v", list[0], row, err)
	}
}

func TestRevokedKeyOpensNothing(t *testing.T) {
	w := newWorld(t)
	token := w.create(t, bothy.TokenCreate{})
	if _, err := w.Authenticate(t.Context(), token.Key); err != nil {
		t.Fatal(err)
	}
	wantCode(t, w.DeleteToken(as("other", bothy.ScopeAdmin), token.ID), bothy.CodeNotFound)
	if _, err := w.Authenticate(t.Context(), token.Key); err != nil {
		t.Fatalf("another project's admin revoked the key: %v", err)
	}
	if err := w.DeleteToken(w.admin, token.ID); err != nil {
		t.Fatal(err)
	}
	_, err := w.Authenticate(t.Context(), token.Key)
	wantCode(t, err, bothy.CodeUnauthenticated)
	wantCode(t, w.DeleteToken(w.admin, token.ID), bothy.CodeNotFound)
}

// A key that is being looked up while it is revoked must not stay in the cache.
func TestRevokedDuringLookUp(t *testing.T) {
	w := newWorld(t)
	token := w.create(t, bothy.TokenCreate{})
	w.db.onLookUp = func() {
		w.db.onLookUp = nil
		if err := w.DeleteToken(w.admin, token.ID); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.Authenticate(t.Context(), token.Key); err != nil {
		t.Fatalf("a look-up that began before the revocation: %v", err)
	}
	_, err := w.Authenticate(t.Context(), token.Key)
	wantCode(t, err, bothy.CodeUnauthenticated)
}

func TestExpiredKey(t *testing.T) {
	w := newWorld(t)
	at := start.Add(time.Hour)
	token := w.create(t, bothy.TokenCreate{ExpiresAt: &at})
	w.forward(time.Hour - 1)
	if _, err := w.Authenticate(t.Context(), token.Key); err != nil {
		t.Fatal(err)
	}
	w.forward(1)
	_, err := w.Authenticate(t.Context(), token.Key)
	wantCode(t, err, bothy.CodeTokenExpired)
	if bothy.AsError(err).Hint == "" {
		t.Error("no hint")
	}
}

func TestLastUseIsNotedOncePerMinute(t *testing.T) {
	w := newWorld(t)
	token := w.create(t, bothy.TokenCreate{})
	for range 10 {
		if _, err := w.Authenticate(t.Context(), token.Key); err != nil {
			t.Fatal(err)
		}
		w.forward(7 * time.Second)
	}
	if w.db.touches != 2 {
		t.Fatalf("%d notes in 63 seconds", w.db.touches)
	}
	list, err := w.Tokens.Tokens(w.admin)
	if err != nil {
		t.Fatal(err)
	}
	if at := list[0].LastUsedAt; at == nil || !at.Equal(start.Add(63*time.Second)) {
		t.Fatalf("last used at %v", at)
	}
	w.db.failTouch = errors.New("the disk is full")
	w.forward(time.Hour)
	if _, err := w.Authenticate(t.Context(), token.Key); err != nil {
		t.Fatalf("a use that cannot be noted locks the caller out: %v", err)
	}
}

func TestOnlyAdminsManageTokens(t *testing.T) {
	w := newWorld(t)
	for _, ctx := range []context.Context{
		context.Background(),
		as("default", bothy.ScopeSandboxesRead, bothy.ScopeSandboxesWrite, bothy.ScopeTemplatesRead, bothy.ScopeTemplatesWrite),
	} {
		want := bothy.CodeForbidden
		if bothy.CallerFrom(ctx) == nil {
			want = bothy.CodeUnauthenticated
		}
		_, err := w.CreateToken(ctx, bothy.TokenCreate{})
		wantCode(t, err, want)
		_, err = w.Tokens.Tokens(ctx)
		wantCode(t, err, want)
		wantCode(t, w.DeleteToken(ctx, "tok_1"), want)
	}
}

func TestOnlyTheOperatorCrossesProjects(t *testing.T) {
	w := newWorld(t)
	tenant := as("blue", bothy.ScopeAdmin)
	for _, project := range []string{bothy.DefaultProject, "red"} {
		_, err := w.CreateToken(tenant, bothy.TokenCreate{ProjectID: project})
		wantCode(t, err, bothy.CodeNotFound)
	}
	for _, project := range []string{"", "blue"} {
		token, err := w.CreateToken(tenant, bothy.TokenCreate{ProjectID: project})
		if err != nil || token.ProjectID != "blue" {
			t.Fatalf("%+v, %v", token, err)
		}
	}
	if list, err := w.Tokens.Tokens(w.admin); err != nil || len(list) != 0 {
		t.Fatalf("the operator's own project has %v, %v", list, err)
	}
}

func TestBadRequests(t *testing.T) {
	w := newWorld(t)
	past := start
	for name, req := range map[string]bothy.TokenCreate{
		"unknown scope": {Scopes: []bothy.Scope{"sandboxes:read", "root"}},
		"past":          {ExpiresAt: &past},
		"long name":     {Name: strings.Repeat("x", 101)},
		"project":       {ProjectID: "../x"},
	} {
		_, err := w.CreateToken(w.admin, req)
		if e := bothy.AsError(err); e.Code != bothy.CodeInvalid || e.Detail == "" || e.Hint == "" {
			t.Errorf("%s: %+v", name, e)
		}
	}
	if list, err := w.Tokens.Tokens(w.admin); err != nil || len(list) != 0 {
		t.Fatalf("bad requests left tokens: %v, %v", list, err)
	}
}

func TestManyAtOnce(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				token, err := w.CreateToken(w.admin, bothy.TokenCreate{})
				if err != nil {
					t.Error(err)
					return
				}
				for range 3 {
					if _, err := w.Authenticate(context.Background(), token.Key); err != nil {
						t.Error(err)
					}
				}
				if err := w.DeleteToken(w.admin, token.ID); err != nil {
					t.Error(err)
				}
				if _, err := w.Authenticate(context.Background(), token.Key); bothy.ErrorCode(err) != bothy.CodeUnauthenticated {
					t.Errorf("revoked key: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkAuthenticate(b *testing.B) {
	w := newWorld(b)
	key := w.create(b, bothy.TokenCreate{}).Key
	for b.Loop() {
		if _, err := w.Authenticate(b.Context(), key); err != nil {
			b.Fatal(err)
		}
	}
}

// Guessing keys does not load the store, and new keys are known at once, even after a restart.
func TestUnknownKeysAreRefusedFromMemory(t *testing.T) {
	w := newWorld(t)
	first := w.create(t, bothy.TokenCreate{})
	for i := range 100 {
		_, err := w.Authenticate(t.Context(), fmt.Sprintf("bothy_%064x", i))
		wantCode(t, err, bothy.CodeUnauthenticated)
	}
	if w.db.lookUps != 0 {
		t.Errorf("the store was asked %d times", w.db.lookUps)
	}
	again := access.New(w.db, access.WithNow(w.now), access.WithLog(slog.New(slog.DiscardHandler)))
	for _, tokens := range []*access.Tokens{w.Tokens, again} {
		if _, err := tokens.Authenticate(t.Context(), first.Key); err != nil {
			t.Error(err)
		}
		second, err := tokens.CreateToken(w.admin, bothy.TokenCreate{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tokens.Authenticate(t.Context(), second.Key); err != nil {
			t.Errorf("a key just made: %v", err)
		}
	}
}

// A project cannot fill the table of keys. The operator can always make one.
func TestKeysPerProject(t *testing.T) {
	w := newWorld(t)
	tenant, soon := as("blue", bothy.ScopeAdmin), w.now().Add(time.Minute)
	first, err := w.CreateToken(tenant, bothy.TokenCreate{ExpiresAt: &soon})
	if err != nil {
		t.Fatal(err)
	}
	for i := range access.MaxKeys - 1 {
		w.db.many = append(w.db.many, &store.Token{Token: bothy.Token{ID: fmt.Sprint("tok_", i), ProjectID: "blue"}})
	}
	_, err = w.CreateToken(tenant, bothy.TokenCreate{})
	wantCode(t, err, bothy.CodeQuota)
	if bothy.AsError(err).Hint == "" {
		t.Error("there is no hint")
	}
	if _, err := w.CreateToken(w.admin, bothy.TokenCreate{ProjectID: "blue"}); err != nil {
		t.Errorf("the operator: %v", err)
	}
	w.db.many = w.db.many[1:]
	w.forward(time.Hour) // the first has expired, and makes room
	if _, err := w.CreateToken(tenant, bothy.TokenCreate{}); err != nil {
		t.Errorf("with an expired key: %v", err)
	}
	_, err = w.Authenticate(t.Context(), first.Key)
	wantCode(t, err, bothy.CodeUnauthenticated)
}
