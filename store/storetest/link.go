package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

func linkIDs(links []*bothy.Link) []string {
	var out []string
	for _, l := range links {
		out = append(out, l.ID)
	}
	return out
}

// linked returns a store with two keys, two sandboxes and four links.
func linked(t *testing.T, f *fixture) (whole *bothy.Link) {
	t.Helper()
	for _, id := range []string{"t1", "t2"} {
		f.must(f.PutToken(f.ctx, &store.Token{Token: bothy.Token{ID: id, ProjectID: "p", CreatedAt: epoch}, Hash: "hash " + id}))
	}
	for _, id := range []string{"a", "b"} {
		f.must(f.PutSandbox(f.ctx, sandbox(id, epoch)))
	}
	whole = full[bothy.Link](t)
	whole.ID, whole.ProjectID, whole.SandboxID, whole.TokenID, whole.CreatedAt, whole.ExpiresAt = "whole", "p", "a", "t1", epoch, epoch.Add(time.Hour)
	f.must(f.AddLink(f.ctx, whole, store.LinkBounds{}))
	for i, l := range []*bothy.Link{{ID: "a2", SandboxID: "a", TokenID: "t2"}, {ID: "b1", SandboxID: "b", TokenID: "t1"}, {ID: "b2", SandboxID: "b", TokenID: "t2"}} {
		l.ProjectID, l.CreatedAt, l.ExpiresAt = "p", epoch.Add(time.Duration(i+1)), epoch.Add(2*time.Hour)
		f.must(f.AddLink(f.ctx, l, store.LinkBounds{}))
	}
	return whole
}

func (f *fixture) wantLinks(sandboxID string, want ...string) {
	f.Helper()
	got, err := f.Links(f.ctx, sandboxID)
	f.must(err)
	equal(f.T, linkIDs(got), want)
}

func testLinks(t *testing.T, f *fixture) {
	want := linked(t, f)
	got, err := f.Link(f.ctx, "whole")
	f.must(err)
	want.URL = "" // the one thing that a store must not keep
	equal(t, got, want)
	_, err = f.Link(f.ctx, "none")
	f.wantCode(err, bothy.CodeNotFound)
	f.wantLinks("a", "a2", "whole")
	f.wantLinks("none")

	project, box, err := f.CountLinks(f.ctx, "p", "b")
	f.must(err)
	if project != 4 || box != 2 {
		t.Errorf("counted %d of the project and %d of the sandbox, want 4 and 2", project, box)
	}
	project, box, err = f.CountLinks(f.ctx, "q", "none")
	f.must(err)
	if project != 0 || box != 0 {
		t.Errorf("counted %d and %d where there are none", project, box)
	}

	f.wantCode(f.DeleteLink(f.ctx, "b", "whole"), bothy.CodeNotFound)
	f.must(f.DeleteLink(f.ctx, "a", "whole"))
	f.wantCode(f.DeleteLink(f.ctx, "a", "whole"), bothy.CodeNotFound)
	f.wantLinks("a", "a2")
}

// testLinkBounds adds links at the same time, of which a bound allows some.
func testLinkBounds(t *testing.T, f *fixture) {
	linked(t, f)
	for what, c := range map[string]struct {
		bounds store.LinkBounds
		want   int
	}{
		"of the project": {store.LinkBounds{Project: 7, Sandbox: 100}, 7},
		"of the sandbox": {store.LinkBounds{Project: 100, Sandbox: 7}, 9}, // a has two more
	} {
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				l := &bothy.Link{ID: fmt.Sprint(what, i), ProjectID: "p", SandboxID: "b", TokenID: "t1", CreatedAt: epoch, ExpiresAt: epoch.Add(time.Hour)}
				if err := f.AddLink(f.ctx, l, c.bounds); err != nil && !errors.As(err, new(*store.TooManyLinks)) {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		all.Wait()
		if n, _, err := f.CountLinks(f.ctx, "p", "b"); err != nil || n != c.want {
			t.Errorf("a bound %s: the project has %d links, not %d; %v", what, n, c.want, err)
		}
		links, err := f.Links(f.ctx, "b")
		f.must(err)
		for _, l := range links {
			if strings.HasPrefix(l.ID, "of the") {
				f.must(f.DeleteLink(f.ctx, "b", l.ID))
			}
		}
	}
	// Whose sandbox is gone is told that.
	f.wantCode(f.AddLink(f.ctx, &bothy.Link{ID: "late", ProjectID: "p", SandboxID: "none", TokenID: "t1"}, store.LinkBounds{Project: 7, Sandbox: 7}), bothy.CodeConflict)
}

func testLinksEnd(t *testing.T, f *fixture) {
	linked(t, f)
	n, err := f.DeleteLinksExpiredBefore(f.ctx, epoch.Add(time.Hour+1))
	f.must(err)
	if n != 1 {
		t.Errorf("forgot %d expired links, want 1", n)
	}
	f.wantLinks("a", "a2")

	f.must(f.DeleteToken(f.ctx, "p", "t1"))
	f.wantLinks("a", "a2")
	f.wantLinks("b", "b2")
	f.wantCode(f.AddLink(f.ctx, &bothy.Link{ID: "late", ProjectID: "p", SandboxID: "a", TokenID: "t1"}, store.LinkBounds{}), bothy.CodeConflict)

	b, err := f.Sandbox(f.ctx, "b")
	f.must(err)
	for _, state := range []bothy.State{bothy.StatePaused, bothy.StateStopped} {
		f.wantLinks("b", "b2")
		b.State = state
		f.must(f.PutSandbox(f.ctx, b))
	}
	f.wantLinks("b")
	f.wantCode(f.AddLink(f.ctx, &bothy.Link{ID: "late", ProjectID: "p", SandboxID: "b", TokenID: "t2"}, store.LinkBounds{}), bothy.CodeConflict)
	f.wantLinks("a", "a2")
}
