package access_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access"
)

// ends collects the reasons why holds ended.
type ends struct {
	mu     sync.Mutex
	causes []error
}

func (e *ends) end(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.causes = append(e.causes, cause)
}

func (e *ends) want(t *testing.T, codes ...bothy.Code) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.causes) != len(codes) {
		t.Fatalf("ended with %v, want %v", e.causes, codes)
	}
	for i, c := range codes {
		wantCode(t, e.causes[i], c)
	}
}

func hold(t *testing.T, w *world, key string) (*ends, func()) {
	t.Helper()
	e := &ends{}
	c, release, err := w.Hold(t.Context(), key, e.end)
	if err != nil || c.ProjectID != "default" {
		t.Fatalf("%+v, %v", c, err)
	}
	return e, release
}

func TestRevocationEndsWhatIsHeld(t *testing.T) {
	w := newWorld(t)
	revoked, kept := w.create(t, bothy.TokenCreate{}), w.create(t, bothy.TokenCreate{})
	first, _ := hold(t, w, revoked.Key)
	second, _ := hold(t, w, revoked.Key)
	released, release := hold(t, w, revoked.Key)
	release()
	other, _ := hold(t, w, kept.Key)
	if err := w.DeleteToken(w.admin, revoked.ID); err != nil {
		t.Fatal(err)
	}
	first.want(t, bothy.CodeUnauthenticated)
	second.want(t, bothy.CodeUnauthenticated)
	released.want(t)
	other.want(t)
	_, _, err := w.Hold(t.Context(), revoked.Key, func(error) {})
	wantCode(t, err, bothy.CodeUnauthenticated)
}

// A key that is revoked after its look-up and before it is held is not held.
func TestRevokedBetweenLookUpAndHold(t *testing.T) {
	w := newWorld(t)
	token := w.create(t, bothy.TokenCreate{})
	w.db.onLookUp = func() {
		w.db.mu.Lock()
		w.db.onLookUp = nil
		w.db.mu.Unlock()
		if err := w.DeleteToken(w.admin, token.ID); err != nil {
			t.Error(err)
		}
	}
	_, _, err := w.Hold(t.Context(), token.Key, func(error) { t.Error("it was notified of an end without holding") })
	wantCode(t, err, bothy.CodeUnauthenticated)
}

func TestExpiryEndsWhatIsHeld(t *testing.T) {
	w := newWorld(t)
	synctest.Test(t, func(t *testing.T) {
		w.Tokens = access.New(w.db)
		at := time.Now().Add(time.Hour)
		token := w.create(t, bothy.TokenCreate{ExpiresAt: &at})
		held, _ := hold(t, w, token.Key)
		released, release := hold(t, w, token.Key)
		release()
		time.Sleep(time.Hour - time.Nanosecond)
		synctest.Wait()
		held.want(t)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		held.want(t, bothy.CodeTokenExpired)
		released.want(t)
	})
}

// A hold that is concurrent with a revocation is either refused or notified.
func TestHoldAndRevokeAtOnce(t *testing.T) {
	w := newWorld(t)
	for range 50 {
		token := w.create(t, bothy.TokenCreate{})
		var wg sync.WaitGroup
		results := make([]ends, 8)
		held := make([]bool, len(results))
		for i := range results {
			wg.Go(func() {
				_, _, err := w.Hold(t.Context(), token.Key, results[i].end)
				held[i] = err == nil
			})
		}
		wg.Go(func() {
			if err := w.DeleteToken(w.admin, token.ID); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		for i := range results {
			if held[i] {
				results[i].want(t, bothy.CodeUnauthenticated)
			} else {
				results[i].want(t)
			}
		}
	}
}
