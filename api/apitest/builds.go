package apitest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/bothy-dev/bothy"
)

// Builder is a bothy.TemplateBuilder in memory. A Dockerfile with the word "false" fails;
// one with "sleep" runs until it is cancelled.
type Builder struct {
	// Made is called with every new template, and returns it.
	Made func(name string) *bothy.Template

	mu     sync.Mutex
	builds []*build
}

type build struct {
	bothy.Build
	events []bothy.BuildEvent
	done   chan struct{}
}

// UploadContext implements bothy.TemplateBuilder.
func (b *Builder) UploadContext(ctx context.Context, r io.Reader) (*bothy.BuildContext, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeTemplatesWrite); err != nil {
		return nil, err
	}
	n, err := io.Copy(io.Discard, r)
	return &bothy.BuildContext{ID: "ctx_1", Files: 1, SizeBytes: n}, err
}

// StartBuild implements bothy.TemplateBuilder.
func (b *Builder) StartBuild(ctx context.Context, req bothy.BuildRequest) (*bothy.Build, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeTemplatesWrite)
	if err != nil {
		return nil, err
	}
	if !bothy.ValidTemplateName(req.Name) {
		return nil, bothy.Errorf(bothy.CodeInvalid, "%q is not a valid template name", req.Name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := &build{done: make(chan struct{}), Build: bothy.Build{
		ID: fmt.Sprintf("bld_%d", len(b.builds)+1), Name: req.Name, State: bothy.BuildRunning, CreatedAt: Epoch, Steps: 1, ProjectID: caller.ProjectID,
	}}
	n.events = []bothy.BuildEvent{{Step: "[1/1] RUN", Message: "hello"}}
	b.builds = append(b.builds, n)
	switch {
	case strings.Contains(req.Dockerfile, "sleep"):
	case strings.Contains(req.Dockerfile, "false"):
		n.end(bothy.BuildFailed, bothy.BuildEvent{Step: "failed", Error: "Dockerfile line 2: the command ended with exit code 1: false"})
	default:
		n.end(bothy.BuildSucceeded, bothy.BuildEvent{Step: "done", Percent: 100, Template: b.Made(req.Name)})
	}
	c := n.Build
	return &c, nil
}

func (n *build) end(s bothy.BuildState, last bothy.BuildEvent) {
	at := Epoch
	n.State, n.EndedAt, n.Error = s, &at, last.Error
	if s == bothy.BuildFailed {
		n.Code = bothy.CodeTemplateInvalid
	}
	n.events = append(n.events, last)
	close(n.done)
}

func (b *Builder) find(ctx context.Context, id string) (*build, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeTemplatesRead)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(b.builds, func(n *build) bool { return n.ID == id && n.ProjectID == caller.ProjectID })
	if i < 0 {
		return nil, bothy.Errorf(bothy.CodeNotFound, "there is no build %q", id)
	}
	return b.builds[i], nil
}

// Build implements bothy.TemplateBuilder.
func (b *Builder) Build(ctx context.Context, id string) (*bothy.Build, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.find(ctx, id)
	if err != nil {
		return nil, err
	}
	c := n.Build
	return &c, nil
}

// Builds implements bothy.TemplateBuilder.
func (b *Builder) Builds(ctx context.Context) ([]*bothy.Build, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeTemplatesRead)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []*bothy.Build{}
	for _, n := range slices.Backward(b.builds) {
		if n.ProjectID == caller.ProjectID {
			c := n.Build
			list = append(list, &c)
		}
	}
	return list, nil
}

// BuildLog implements bothy.TemplateBuilder.
func (b *Builder) BuildLog(ctx context.Context, id string, from int64, fn func(int64, bothy.BuildEvent) error) error {
	b.mu.Lock()
	n, err := b.find(ctx, id)
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case <-n.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	for i := from; i < int64(len(n.events)); i++ {
		if err := fn(i, n.events[i]); err != nil {
			return err
		}
	}
	return nil
}

// CancelBuild implements bothy.TemplateBuilder.
func (b *Builder) CancelBuild(ctx context.Context, id string) (*bothy.Build, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeTemplatesWrite); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.find(ctx, id)
	if err != nil {
		return nil, err
	}
	if !n.State.Ended() {
		n.end(bothy.BuildCancelled, bothy.BuildEvent{Step: "cancelled", Error: "the build was cancelled"})
	}
	c := n.Build
	return &c, nil
}
