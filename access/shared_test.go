package access_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access"
	"github.com/bothy-dev/bothy/store/sqlite"
)

// hashCounter counts how often all hashes are read.
type hashCounter struct {
	access.Store
	mu    sync.Mutex
	reads int
}

func (c *hashCounter) TokenHashes(ctx context.Context) ([]string, error) {
	c.mu.Lock()
	c.reads++
	c.mu.Unlock()
	return c.Store.TokenHashes(ctx)
}

func TestKeysOfOtherHosts(t *testing.T) {
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "bothy.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	counter := &hashCounter{Store: db}
	one, two := access.New(db, access.WithShared(true)), access.New(counter, access.WithShared(true))
	admin := bothy.WithCaller(t.Context(), &bothy.Caller{ProjectID: bothy.DefaultProject, Scopes: []bothy.Scope{bothy.ScopeAdmin}})
	// The other host reads the hashes repeatedly, and each key is made right after a read.
	for range 3 {
		if err := two.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		token, err := one.CreateToken(admin, bothy.TokenCreate{})
		if err != nil {
			t.Fatal(err)
		}
		if c, err := two.Authenticate(t.Context(), token.Key); err != nil || c.TokenID != token.ID {
			t.Errorf("a key that the other host has just made: %+v, %v", c, err)
		}
	}

	// Concurrent guesses cost one read of the store.
	token, err := one.CreateToken(admin, bothy.TokenCreate{})
	if err != nil {
		t.Fatal(err)
	}
	if err := two.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := one.DeleteToken(admin, token.ID); err != nil {
		t.Fatal(err)
	}
	if err := two.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, began := counter.reads, time.Now()
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			if _, err := two.Authenticate(t.Context(), token.Key); bothy.ErrorCode(err) != bothy.CodeUnauthenticated {
				t.Errorf("a key that was revoked: %v", err)
			}
		})
	}
	wg.Wait()
	if reads, may := counter.reads-before, 1+int(time.Since(began)/(200*time.Millisecond)); reads > may {
		t.Errorf("200 guesses had the store asked %d times", reads)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := two.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Authenticate(gone, token.Key); bothy.ErrorCode(err) == "" {
		t.Error("a caller that has gone was let in")
	}
}
