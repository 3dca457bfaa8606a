package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// wantConflict checks that a write of a sandbox was refused, and that the error says why.
func (f *fixture) wantConflict(err error, expected, found int64) {
	f.Helper()
	f.wantCode(err, bothy.CodeConflict)
	var c *store.Conflict
	if !errors.As(err, &c) || c.Expected != expected || c.Found != found {
		f.Fatalf("the conflict is %+v, want version %d expected and %d found", c, expected, found)
	}
	e := bothy.AsError(err)
	for _, says := range []string{c.Sandbox, fmt.Sprint("version ", max(expected, found))} {
		if !strings.Contains(e.Detail, says) {
			f.Errorf("%q does not contain %q", e.Detail, says)
		}
	}
	if e.Hint == "" {
		f.Errorf("%q has no hint", e.Detail)
	}
}

// Each write replaces the version that was read, and no other.
func testSandboxVersions(t *testing.T, f *fixture) {
	s := sandbox("a", epoch)
	for want := int64(1); want <= 3; want++ {
		s.Name = fmt.Sprint("name ", want)
		f.must(f.PutSandbox(f.ctx, s))
		got, err := f.Sandbox(f.ctx, "a")
		f.must(err)
		listed, err := f.SandboxesInState(f.ctx, bothy.StateRunning)
		f.must(err)
		page, err := f.Sandboxes(f.ctx, "p", bothy.SandboxFilter{})
		f.must(err)
		for how, v := range map[string]int64{"written": s.Version, "read": got.Version, "listed": listed[0].Version, "in a page": page.Items[0].Version} {
			if v != want {
				t.Fatalf("version %d %s, want %d", v, how, want)
			}
		}
	}
	f.reopen()
	for version, found := range map[int64]int64{0: 3, 1: 3, 2: 3, 4: 3} {
		late := sandbox("a", epoch)
		late.State, late.Ended, late.Version = bothy.StateStopped, &bothy.Ended{At: epoch}, version
		f.wantConflict(f.PutSandbox(f.ctx, late), version, found)
		if late.Version != version {
			t.Errorf("a write that was refused has version %d", late.Version)
		}
	}
	got, err := f.Sandbox(f.ctx, "a")
	f.must(err)
	equal(t, got, s)

	// A row that is gone does not come back by a late write.
	s.State, s.Ended = bothy.StateStopped, &bothy.Ended{At: epoch}
	f.must(f.PutSandbox(f.ctx, s))
	_, err = f.DeleteSandboxesEndedBefore(f.ctx, epoch.Add(1))
	f.must(err)
	f.wantConflict(f.PutSandbox(f.ctx, s), 4, 0)
	_, err = f.Sandbox(f.ctx, "a")
	f.wantCode(err, bothy.CodeSandboxNotFound)
}

// A write that fails for another reason than a conflict can be made again.
func testSandboxVersionAfterFailure(t *testing.T, f *fixture) {
	s := sandbox("a", epoch)
	f.must(f.PutSandbox(f.ctx, s))
	gone, cancel := context.WithCancel(f.ctx)
	cancel()
	s.Name = "after"
	if err := f.PutSandbox(gone, s); err == nil || s.Version != 1 {
		t.Fatalf("version %d after %v", s.Version, err)
	}
	f.must(f.PutSandbox(f.ctx, s))
	if s.Version != 2 {
		t.Fatalf("version %d", s.Version)
	}
}

// A refused end of a sandbox leaves its links.
func testSandboxConflictChangesNothing(t *testing.T, f *fixture) {
	linked(t, f)
	links, err := f.Links(f.ctx, "b")
	f.must(err)
	late, err := f.Sandbox(f.ctx, "b")
	f.must(err)
	b := *late
	f.must(f.PutSandbox(f.ctx, &b))
	late.State = bothy.StateStopped
	f.wantConflict(f.PutSandbox(f.ctx, late), 1, 2)
	left, err := f.Links(f.ctx, "b")
	f.must(err)
	if len(links) == 0 || len(left) != len(links) {
		t.Fatalf("of %d links %d are left", len(links), len(left))
	}
}

// Of many who write the same version at once, one does.
func testSandboxWritersRace(t *testing.T, f *fixture) {
	f.must(f.PutSandbox(f.ctx, sandbox("a", epoch)))
	for round := range 20 {
		was, err := f.Sandbox(f.ctx, "a")
		f.must(err)
		var won atomic.Value
		var wins atomic.Int64
		var wg sync.WaitGroup
		for w := range 6 {
			wg.Go(func() {
				mine := *was
				mine.Name = fmt.Sprint(round, "-", w)
				if w%2 == 0 {
					mine.State = bothy.StatePaused
				}
				err := f.PutSandbox(f.ctx, &mine)
				switch {
				case err == nil:
					won.Store(mine.Name)
					wins.Add(1)
				case !errors.As(err, new(*store.Conflict)):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		got, err := f.Sandbox(f.ctx, "a")
		f.must(err)
		if wins.Load() != 1 || got.Name != won.Load() || got.Version != was.Version+1 {
			t.Fatalf("%d writers won, last %v; the row is version %d of %q", wins.Load(), won.Load(), got.Version, got.Name)
		}
	}
	// So it is with those that add the same one.
	var wins atomic.Int64
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			s := sandbox("b", epoch)
			s.Name = fmt.Sprint(w)
			if f.PutSandbox(f.ctx, s) == nil {
				wins.Add(1)
			}
		})
	}
	wg.Wait()
	if wins.Load() != 1 {
		t.Fatalf("%d writers added the same sandbox", wins.Load())
	}
}
