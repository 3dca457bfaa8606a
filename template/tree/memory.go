package tree

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// nodeBytes is the memory that a node takes, with its place in a folder and in an image
	// that is being written, and cloneBytes that of its place in a clone.
	nodeBytes, cloneBytes = 512, 64
	// claimBytes is how much is taken at a time.
	claimBytes = 1 << 20
	// patience is how long to wait for memory before looking for trees that nobody uses.
	patience = 100 * time.Millisecond
)

// An account has what a tree has taken with bothy.TakeMemory, alone and together with the trees
// that it was cloned from.
type account struct {
	claims []*claim
	owed   int64 // not taken yet
}

// A claim is given back when no tree has it any more, as the garbage collector finds out: that
// is when the memory is free.
type claim struct {
	ctx   context.Context
	bytes int64
}

// clone is the account of a clone of a tree with this many files.
func (a *account) clone(files int64) account {
	return account{claims: slices.Clip(a.claims), owed: files * cloneBytes}
}

// take takes n bytes for the request or build that ctx belongs to.
func (a *account) take(ctx context.Context, n int64) error {
	if a.owed += n; a.owed < claimBytes {
		return nil
	}
	return a.flush(ctx)
}

// flush takes what is owed.
func (a *account) flush(ctx context.Context) error {
	impatient := time.AfterFunc(patience, runtime.GC)
	defer impatient.Stop()
	c := &claim{ctx, a.owed}
	if err := bothy.TakeMemory(ctx, c.bytes); err != nil {
		return err
	}
	a.owed = 0
	a.claims = append(a.claims, c)
	runtime.AddCleanup(c, func(c claim) { bothy.GiveMemory(c.ctx, c.bytes) }, *c)
	return nil
}
