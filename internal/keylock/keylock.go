// Package keylock gives every key a lock of its own.
package keylock

import (
	"context"
	"sync"
)

// Locks gives every key a lock of its own.
type Locks struct {
	mu sync.Mutex
	m  map[string]*keyLock
}

type keyLock struct {
	held  chan struct{} // takes one
	users int           // callers that hold it or wait for it
}

// Lock returns a function that unlocks.
func (k *Locks) Lock(key string) (unlock func()) {
	unlock, _ = k.LockIn(context.Background(), key)
	return unlock
}

// TryLock is Lock that does not wait: it returns nil if another holds it.
func (k *Locks) TryLock(key string) (unlock func()) {
	l := k.use(key)
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; k.unuse(key, l) }
	default:
		k.unuse(key, l)
		return nil
	}
}

// LockIn is Lock that waits no longer than ctx.
func (k *Locks) LockIn(ctx context.Context, key string) (unlock func(), err error) {
	l := k.use(key)
	select {
	case l.held <- struct{}{}:
		return func() { <-l.held; k.unuse(key, l) }, nil
	case <-ctx.Done():
		k.unuse(key, l)
		return nil, ctx.Err()
	}
}

func (k *Locks) use(key string) *keyLock {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.m == nil {
		k.m = map[string]*keyLock{}
	}
	l := k.m[key]
	if l == nil {
		l = &keyLock{held: make(chan struct{}, 1)}
		k.m[key] = l
	}
	l.users++
	return l
}

func (k *Locks) unuse(key string, l *keyLock) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(k.m, key)
	}
}

// Users counts the callers that hold the lock of a key or wait for it.
func (k *Locks) Users(key string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.m[key]; l != nil {
		return l.users
	}
	return 0
}
