package access

import (
	"context"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// holders are the requests in flight that use a key or a link, by its id.
//
// A request whose key is revoked between its look-up and add would never be told. So every end
// starts a new generation, and add only accepts look-ups made in the current one.
type holders struct {
	mu         sync.Mutex
	generation uint64
	byID       map[string]map[*holder]struct{}
}

type holder struct {
	end   func(cause error)
	timer *time.Timer
}

func (h *holders) now() (generation uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.generation
}

// add arranges for end to be called when the id ends, or when its remaining time,
// if known, is up. It reports false, and does nothing, if anything has ended since
// the generation.
func (h *holders) add(generation uint64, id string, left *time.Duration, expired error, end func(error)) (release func(), ok bool) {
	x := &holder{end: end}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.generation != generation {
		return nil, false
	}
	if h.byID == nil {
		h.byID = map[string]map[*holder]struct{}{}
	}
	if h.byID[id] == nil {
		h.byID[id] = map[*holder]struct{}{}
	}
	h.byID[id][x] = struct{}{}
	if left != nil {
		x.timer = time.AfterFunc(*left, func() { end(expired) })
	}
	return func() { h.remove(id, x) }, true
}

func (h *holders) remove(id string, x *holder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if x.timer != nil {
		x.timer.Stop()
	}
	delete(h.byID[id], x)
	if len(h.byID[id]) == 0 {
		delete(h.byID, id)
	}
}

// end tells all holders of one of the ids. No caller that looked them up before can hold them
// afterwards.
func (h *holders) end(cause error, ids ...string) {
	h.mu.Lock()
	h.generation++
	var told []*holder
	for _, id := range ids {
		for x := range h.byID[id] {
			told = append(told, x)
		}
	}
	h.mu.Unlock()
	for _, x := range told {
		x.end(cause)
	}
}

// Hold implements bothy.KeyHolder.
func (t *Tokens) Hold(ctx context.Context, key string, end func(cause error)) (*bothy.Caller, func(), error) {
	for {
		generation := t.holders.now()
		token, err := t.authenticate(ctx, key)
		if err != nil {
			return nil, nil, err
		}
		if release, ok := t.hold(generation, token, end); ok {
			return callerOf(token), release, nil
		}
	}
}

func (t *Tokens) hold(generation uint64, token *store.Token, end func(cause error)) (release func(), ok bool) {
	if token.ExpiresAt == nil {
		return t.holders.add(generation, token.ID, nil, nil, end)
	}
	left := token.ExpiresAt.Sub(t.now())
	return t.holders.add(generation, token.ID, &left, expiredKey(*token.ExpiresAt), end)
}

func expiredKey(at time.Time) error {
	return bothy.Errorf(bothy.CodeTokenExpired, "this API key expired at %s", at.UTC().Format(time.RFC3339)).
		WithHint("Make a new key with `bothy token create`.")
}

func revokedKey() error {
	return bothy.Errorf(bothy.CodeUnauthenticated, "this API key was revoked").
		WithHint("Make a new key with `bothy token create`; a revoked key does not come back.")
}
