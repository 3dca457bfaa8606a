package lifecycle_test

import (
	"context"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle"
)

// shared is a cluster whose other hosts do nothing. What is below is a part of one that a test sets.
type shared struct{ lifecycle.Alone }

func (shared) Shared() bool { return true }

func asShared(o *lifecycle.Options) { o.Cluster = shared{lifecycle.Alone{Store: o.Store}} }

type labelled struct {
	lifecycle.Cluster
	labels map[string]string
}

func (l labelled) Labels() map[string]string { return l.labels }

func withLabels(labels map[string]string) func(*lifecycle.Options) {
	return func(o *lifecycle.Options) {
		asShared(o)
		o.Cluster = labelled{o.Cluster, labels}
	}
}

type awaited struct {
	lifecycle.Cluster
	await func() error
}

func (a awaited) Await(context.Context) error { return a.await() }

type withoutHost struct{ lifecycle.Cluster }

func (withoutHost) NoHost(_ context.Context, id string, n bothy.MemoryNeeds) error {
	return bothy.Errorf(bothy.CodeUnsupported, "no host for %s of %s", id, n.Processor)
}

type withDead struct {
	lifecycle.Cluster
	claimed *int
}

func (d withDead) ClaimDead(context.Context, string) (bool, error) {
	*d.claimed++
	return true, nil
}

type timed struct {
	lifecycle.Cluster
	time func(*bothy.Snapshot)
}

func (c timed) TimedSnapshot(ctx context.Context, id string) (*bothy.Snapshot, error) {
	n, err := c.Cluster.TimedSnapshot(ctx, id)
	if err == nil {
		c.time(n)
	}
	return n, err
}
