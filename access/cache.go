package access

import (
	"sync"
	"time"

	"github.com/bothy-dev/bothy/store"
)

// maxCached bounds the cache, which is emptied when it is full.
const maxCached = 10000

// cache holds tokens by the hash of their key.
//
// A token that is read from the store while another call revokes it must not enter the cache
// afterwards and stay there. So every drop starts a new generation, and add keeps only tokens
// that were read in the current one.
type cache struct {
	mu         sync.RWMutex
	generation uint64
	byHash     map[string]*entry
	byID       map[string]*entry // the same
}

func (c *cache) get(hash string) (e *entry, generation uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byHash[hash], c.generation
}

func (c *cache) getID(id string) (e *entry, generation uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byID[id], c.generation
}

func (c *cache) add(generation uint64, t *store.Token) *entry {
	e := &entry{token: t}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation != generation {
		return e
	}
	if c.byHash == nil || len(c.byHash) >= maxCached {
		c.byHash, c.byID = map[string]*entry{}, map[string]*entry{}
	}
	if there := c.byHash[t.Hash]; there != nil {
		return there
	}
	c.byHash[t.Hash], c.byID[t.ID] = e, e
	return e
}

func (c *cache) drop(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	if e := c.byID[id]; e != nil {
		delete(c.byHash, e.token.Hash)
		delete(c.byID, id)
	}
}

// entry is a token and the time at which its use was last recorded.
type entry struct {
	token *store.Token

	mu      sync.Mutex
	touched time.Time
}

// due reports whether the use of the token should be recorded now, once per touchEvery.
func (e *entry) due(now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.touched.IsZero() && now.Sub(e.touched) < touchEvery {
		return false
	}
	e.touched = now
	return true
}
