package apitest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// Links is a bothy.LinkService over a world.
type Links struct {
	World interface {
		Get(ctx context.Context, id string) (*bothy.Sandbox, error)
	}

	mu    sync.Mutex
	links []*bothy.Link
	held  map[string][]func(error)
}

// CreateLink implements bothy.LinkService.
func (l *Links) CreateLink(ctx context.Context, sandboxID string, req bothy.LinkCreate) (*bothy.Link, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesWrite)
	if err != nil {
		return nil, err
	}
	if _, err := l.World.Get(ctx, sandboxID); err != nil {
		return nil, err
	}
	if req.Kind == "" {
		req.Kind = bothy.LinkBrowser
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	link := &bothy.Link{
		ID: fmt.Sprintf("lnk_%d", len(l.links)+1), ProjectID: caller.ProjectID, SandboxID: sandboxID, Port: req.Port, Kind: req.Kind, KeepHost: req.KeepHost,
		TokenID: caller.TokenID, CreatedAt: Epoch, ExpiresAt: time.Now().Add(req.For),
	}
	l.links = append(l.links, link)
	c := *link
	return &c, nil
}

// Links implements bothy.LinkService.
func (l *Links) Links(ctx context.Context, sandboxID string) ([]*bothy.Link, error) {
	if _, err := l.World.Get(ctx, sandboxID); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*bothy.Link
	for _, x := range l.links {
		if x.SandboxID == sandboxID {
			out = append(out, x)
		}
	}
	return out, nil
}

// DeleteLink implements bothy.LinkService.
func (l *Links) DeleteLink(ctx context.Context, sandboxID, id string) error {
	if _, err := l.World.Get(ctx, sandboxID); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.links)
	l.links = slices.DeleteFunc(l.links, func(x *bothy.Link) bool { return x.ID == id && x.SandboxID == sandboxID })
	if len(l.links) == n {
		return bothy.Errorf(bothy.CodeNotFound, "there is no link %q", id).WithHint("List them.")
	}
	for _, end := range l.held[id] {
		end(endedLink)
	}
	return nil
}

var endedLink = bothy.Errorf(bothy.CodeUnauthenticated, "this link has ended: it was deleted").WithHint("Make a new one: POST /links.")

// HoldLink implements bothy.LinkService. Nothing is ever released.
func (l *Links) HoldLink(_ context.Context, id string, end func(error)) (*bothy.Link, func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.links {
		if x.ID == id && time.Now().Before(x.ExpiresAt) {
			if l.held == nil {
				l.held = map[string][]func(error){}
			}
			l.held[id] = append(l.held[id], end)
			return x, func() {}, nil
		}
	}
	return nil, nil, endedLink
}
