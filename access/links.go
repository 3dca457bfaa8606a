package access

import (
	"context"
	"errors"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/random"
	"github.com/bothy-dev/bothy/store"
)

// Limits on links that can be used at the same time.
const (
	maxLinksPerSandbox = 100
	maxLinksPerProject = 1000
	// defaultLinkLife is how long a link works unless the request says otherwise, and
	// maxLinkLife is the longest.
	defaultLinkLife = time.Hour
	maxLinkLife     = 7 * 24 * time.Hour
)

// LinkStore is what Links needs of store.Store.
type LinkStore interface {
	AddLink(ctx context.Context, l *bothy.Link, b store.LinkBounds) error
	Link(ctx context.Context, id string) (*bothy.Link, error)
	Links(ctx context.Context, sandboxID string) ([]*bothy.Link, error)
	DeleteLink(ctx context.Context, sandboxID, id string) error
	DeleteLinksExpiredBefore(ctx context.Context, t time.Time) (int, error)
}

// Sandboxes looks up a sandbox with the rights of the caller in the context.
type Sandboxes interface {
	Get(ctx context.Context, id string) (*bothy.Sandbox, error)
}

// Links is the bothy.LinkService over a store. Links end with the tokens that made them.
type Links struct {
	store     LinkStore
	tokens    *Tokens
	sandboxes Sandboxes
}

var _ bothy.LinkService = (*Links)(nil)

// NewLinks returns the links in a store, which must be that of the tokens.
func NewLinks(s LinkStore, tokens *Tokens, sandboxes Sandboxes) *Links {
	return &Links{store: s, tokens: tokens, sandboxes: sandboxes}
}

// CreateLink implements bothy.LinkService. A link expires no later than the key that the request
// was made with.
func (l *Links) CreateLink(ctx context.Context, sandboxID string, req bothy.LinkCreate) (*bothy.Link, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	if err := checkLink(&req); err != nil {
		return nil, err
	}
	if _, err := l.sandboxes.Get(ctx, sandboxID); err != nil {
		return nil, err
	}
	now := l.tokens.now().UTC()
	link := &bothy.Link{
		ID: "lnk_" + random.Hex(8), ProjectID: caller.ProjectID, SandboxID: sandboxID, Port: req.Port, Kind: req.Kind, KeepHost: req.KeepHost,
		TokenID: caller.TokenID, TokenName: caller.TokenName, CreatedAt: now, ExpiresAt: now.Add(req.For).Truncate(time.Second),
	}
	if at := caller.ExpiresAt; at != nil && at.Before(link.ExpiresAt) {
		link.ExpiresAt = at.UTC()
	}
	return link, l.add(ctx, link, now)
}

func checkLink(req *bothy.LinkCreate) error {
	if req.Kind == "" {
		req.Kind = bothy.LinkBrowser
	}
	if req.For == 0 {
		req.For = defaultLinkLife
	}
	switch {
	case req.Port < 1 || req.Port > 65535:
		return bothy.Errorf(bothy.CodeInvalid, "port: %d is not a port", req.Port).WithHint("Give a number from 1 to 65535.")
	case req.Kind != bothy.LinkBrowser && req.Kind != bothy.LinkWebhook && req.Kind != bothy.LinkCDP:
		return bothy.Errorf(bothy.CodeInvalid, "kind: %q is not a kind of link", req.Kind).WithHint("The kinds are browser, webhook and cdp.")
	case req.For < time.Second || req.For > maxLinkLife:
		return bothy.Errorf(bothy.CodeInvalid, "a link cannot last %s", req.For).WithHint("Give from one second to seven days.")
	}
	return nil
}

func (l *Links) add(ctx context.Context, link *bothy.Link, now time.Time) error {
	if _, err := l.store.DeleteLinksExpiredBefore(ctx, now); err != nil {
		return err
	}
	err := l.store.AddLink(ctx, link, store.LinkBounds{Project: maxLinksPerProject, Sandbox: maxLinksPerSandbox})
	many := (*store.TooManyLinks)(nil)
	if !errors.As(err, &many) {
		return err
	}
	const hint = "Delete links that are not needed (`bothy link rm`), or give them less time."
	if many.Sandbox >= maxLinksPerSandbox {
		return bothy.Errorf(bothy.CodeQuota, "the sandbox %s has %d links, which is the most there can be", link.SandboxID, many.Sandbox).WithHint(hint)
	}
	return bothy.Errorf(bothy.CodeQuota, "the project has %d links, which is the most there can be", many.Project).WithHint(hint)
}

// Links implements bothy.LinkService.
func (l *Links) Links(ctx context.Context, sandboxID string) ([]*bothy.Link, error) {
	if _, err := l.sandboxes.Get(ctx, sandboxID); err != nil {
		return nil, err
	}
	all, err := l.store.Links(ctx, sandboxID)
	var good []*bothy.Link
	for _, link := range all {
		if l.tokens.now().Before(link.ExpiresAt) {
			good = append(good, link)
		}
	}
	return good, err
}

// DeleteLink implements bothy.LinkService.
func (l *Links) DeleteLink(ctx context.Context, sandboxID, id string) error {
	if _, err := bothy.Require(ctx, bothy.ScopeSandboxesWrite); err != nil {
		return err
	}
	if _, err := l.sandboxes.Get(ctx, sandboxID); err != nil {
		return err
	}
	if err := l.store.DeleteLink(ctx, sandboxID, id); err != nil {
		return err
	}
	l.tokens.holders.end(endedLink("it was deleted"), id)
	return nil
}

// HoldLink implements bothy.LinkService. It asks the store each time, so no cache can keep a
// link alive.
func (l *Links) HoldLink(ctx context.Context, id string, end func(cause error)) (*bothy.Link, func(), error) {
	h := &l.tokens.holders
	for {
		generation := h.now()
		link, err := l.store.Link(ctx, id)
		if bothy.ErrorCode(err) == bothy.CodeNotFound {
			return nil, nil, endedLink("it was deleted, or its sandbox or the key that made it is gone")
		}
		if err != nil {
			return nil, nil, err
		}
		expired := endedLink("it expired at " + link.ExpiresAt.UTC().Format(time.RFC3339))
		left := link.ExpiresAt.Sub(l.tokens.now())
		if left <= 0 {
			return nil, nil, expired
		}
		release, ok := h.add(generation, id, &left, expired, end)
		if !ok {
			continue
		}
		withKey, ok := h.add(generation, link.TokenID, nil, nil, func(error) { end(endedLink("the key that made it was revoked")) })
		if !ok {
			release()
			continue
		}
		return link, func() { release(); withKey() }, nil
	}
}

func endedLink(why string) error {
	return bothy.Errorf(bothy.CodeUnauthenticated, "this link has ended: %s", why).
		WithHint("Make a new one: POST /v1/sandboxes/{id}/links, or `bothy link create`.")
}
