package access

import (
	"context"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// loadAgain is how long to wait before checking again whether another server has made an unknown
// key.
const loadAgain = 200 * time.Millisecond

// WithShared says whether other servers change the tokens and projects as well.
func WithShared(shared bool) Option { return func(t *Tokens) { t.shared = shared } }

// Refresh picks up changes by other servers: keys that they revoked stop working, and requests
// that use one are told.
func (t *Tokens) Refresh(ctx context.Context) error {
	at := t.now()
	all, err := t.store.TokenHashes(ctx)
	if err != nil {
		return err
	}
	there := make(map[string]struct{}, len(all))
	for _, h := range all {
		there[h] = struct{}{}
	}
	for _, token := range t.cache.all() {
		if _, ok := there[token.Hash]; ok {
			continue
		}
		// It may have been made after the list was read.
		if _, err := t.store.TokenByHash(ctx, token.Hash); bothy.ErrorCode(err) == bothy.CodeNotFound {
			t.cache.drop(token.ID)
			t.holders.end(revokedKey(), token.ID)
		}
	}
	t.hashesMu.Lock()
	defer t.hashesMu.Unlock()
	t.hashes, t.loaded = there, at
	if t.projects != nil {
		t.projects.forget()
	}
	return nil
}

// all returns what is cached.
func (c *cache) all() []*store.Token {
	c.mu.RLock()
	defer c.mu.RUnlock()
	list := make([]*store.Token, 0, len(c.byID))
	for _, e := range c.byID {
		list = append(list, e.token)
	}
	return list
}

// forget makes plans be read again.
func (p *Projects) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.plans)
}
