package access_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/sqlite"
)

// boxes is a caller's view of the sandboxes in a store.
type boxes struct{ db *sqlite.Store }

func (b boxes) Get(ctx context.Context, id string) (*bothy.Sandbox, error) {
	c, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return nil, err
	}
	sb, err := b.db.Sandbox(ctx, id)
	if err != nil {
		return nil, err
	}
	if sb.ProjectID != c.ProjectID {
		return nil, bothy.Errorf(bothy.CodeSandboxNotFound, "there is no sandbox %q", id)
	}
	return &sb.Sandbox, nil
}

type linkWorld struct {
	*world
	*access.Links
	db    *sqlite.Store
	token *bothy.Token
	ctx   context.Context // the token's
}

func newLinkWorld(t *testing.T) *linkWorld {
	t.Helper()
	w := newWorld(t)
	db := w.db.Store.(*sqlite.Store)
	l := &linkWorld{world: w, db: db, Links: access.NewLinks(db, w.Tokens, boxes{db})}
	l.use(w.create(t, bothy.TokenCreate{Name: "anna"}))
	for _, id := range []string{"a", "b"} {
		l.put(t, id, bothy.StateRunning)
	}
	return l
}

func (w *linkWorld) use(token *bothy.Token) {
	w.token = token
	w.ctx = bothy.WithCaller(context.Background(), &bothy.Caller{
		ProjectID: "default", TokenID: token.ID, TokenName: token.Name, Scopes: token.Scopes, ExpiresAt: token.ExpiresAt,
	})
}

func (w *linkWorld) put(t *testing.T, id string, s bothy.State) {
	t.Helper()
	sb := &store.Sandbox{Sandbox: bothy.Sandbox{ID: id, ProjectID: "default", State: s, CreatedAt: start}}
	if row, err := w.db.Sandbox(t.Context(), id); err == nil {
		sb.Version = row.Version
	}
	if err := w.db.PutSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
}

func (w *linkWorld) make(t *testing.T, req bothy.LinkCreate) *bothy.Link {
	t.Helper()
	req.Port = 80
	l, err := w.CreateLink(w.ctx, "a", req)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (w *linkWorld) hold(t *testing.T, id string) *ends {
	t.Helper()
	e := &ends{}
	if _, _, err := w.HoldLink(t.Context(), id, e.end); err != nil {
		t.Fatal(err)
	}
	return e
}

func (w *linkWorld) gone(t *testing.T, id string) {
	t.Helper()
	_, _, err := w.HoldLink(t.Context(), id, func(error) {})
	wantCode(t, err, bothy.CodeUnauthenticated)
}

func TestLinksEndWithTheirSandboxAndToken(t *testing.T) {
	w := newLinkWorld(t)
	deleted, kept := w.make(t, bothy.LinkCreate{}), w.make(t, bothy.LinkCreate{Kind: bothy.LinkWebhook})
	if deleted.Kind != bothy.LinkBrowser || deleted.TokenName != "anna" || !deleted.ExpiresAt.Equal(start.Add(time.Hour)) {
		t.Errorf("made %+v", deleted)
	}
	first, second := w.hold(t, deleted.ID), w.hold(t, kept.ID)
	wantCode(t, w.DeleteLink(w.ctx, "b", deleted.ID), bothy.CodeNotFound)
	wantCode(t, w.DeleteLink(as("other", bothy.AllScopes...), "a", deleted.ID), bothy.CodeSandboxNotFound)
	wantCode(t, w.DeleteLink(as("default", bothy.ScopeSandboxesRead), "a", deleted.ID), bothy.CodeForbidden)
	if err := w.DeleteLink(w.ctx, "a", deleted.ID); err != nil {
		t.Fatal(err)
	}
	first.want(t, bothy.CodeUnauthenticated)
	second.want(t)
	w.gone(t, deleted.ID)

	if err := w.DeleteToken(w.admin, w.token.ID); err != nil {
		t.Fatal(err)
	}
	second.want(t, bothy.CodeUnauthenticated)
	w.gone(t, kept.ID)
	_, err := w.CreateLink(w.ctx, "a", bothy.LinkCreate{Port: 80})
	wantCode(t, err, bothy.CodeConflict)

	w.use(w.create(t, bothy.TokenCreate{}))
	ended := w.make(t, bothy.LinkCreate{})
	w.put(t, "a", bothy.StateStopped)
	w.gone(t, ended.ID)
	_, err = w.CreateLink(w.ctx, "a", bothy.LinkCreate{Port: 80})
	wantCode(t, err, bothy.CodeConflict)
}

func TestLinksExpire(t *testing.T) {
	w := newLinkWorld(t)
	synctest.Test(t, func(t *testing.T) {
		w.Tokens = access.New(w.world.db)
		w.Links = access.NewLinks(w.db, w.Tokens, boxes{w.db})
		at := time.Now().Add(10 * time.Minute)
		w.use(w.create(t, bothy.TokenCreate{ExpiresAt: &at}))
		short, long := w.make(t, bothy.LinkCreate{For: time.Minute}), w.make(t, bothy.LinkCreate{})
		if !long.ExpiresAt.Equal(at) {
			t.Errorf("the link expires at %v, and its key at %v", long.ExpiresAt, at)
		}
		first, second := w.hold(t, short.ID), w.hold(t, long.ID)
		time.Sleep(time.Minute)
		synctest.Wait()
		first.want(t, bothy.CodeUnauthenticated)
		second.want(t)
		w.gone(t, short.ID)
		if all, err := w.Links.Links(w.ctx, "a"); err != nil || len(all) != 1 || all[0].ID != long.ID {
			t.Errorf("listed %v, %v", all, err)
		}
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		second.want(t, bothy.CodeUnauthenticated)
		w.gone(t, long.ID)
	})
}

func TestLinksAreBounded(t *testing.T) {
	w := newLinkWorld(t)
	for range 100 {
		w.make(t, bothy.LinkCreate{For: time.Minute})
	}
	_, err := w.CreateLink(w.ctx, "a", bothy.LinkCreate{Port: 80})
	wantCode(t, err, bothy.CodeQuota)
	if _, err := w.CreateLink(w.ctx, "b", bothy.LinkCreate{Port: 80}); err != nil {
		t.Error(err)
	}
	w.mu.Lock()
	w.at = w.at.Add(2 * time.Minute)
	w.mu.Unlock()
	w.make(t, bothy.LinkCreate{}) // the expired ones are forgotten
	for _, req := range []bothy.LinkCreate{{Port: 0}, {Port: 65536}, {Port: 80, Kind: "mail"}, {Port: 80, For: 8 * 24 * time.Hour}, {Port: 80, For: -1}} {
		_, err := w.CreateLink(w.ctx, "a", req)
		wantCode(t, err, bothy.CodeInvalid)
	}
	_, err = w.CreateLink(as("default", bothy.ScopeSandboxesRead), "a", bothy.LinkCreate{Port: 80})
	wantCode(t, err, bothy.CodeForbidden)
}
