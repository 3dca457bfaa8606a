package depot

import (
	"context"
	"sync"

	"github.com/bothy-dev/bothy/blob"
	"github.com/bothy-dev/bothy/snapshot"
)

// origins remembers which image each snapshot started from, so that what asks for every image does
// not read every manifest each time.
type origins struct {
	mu    sync.Mutex
	known map[string]origin
}

// origin is what a manifest says. One that cannot be read says nothing.
type origin struct{ image, project string }

func (o *origins) of(ctx context.Context, blobs blob.Store, id string) (origin, error) {
	o.mu.Lock()
	found, ok := o.known[id]
	o.mu.Unlock()
	if ok {
		return found, nil
	}
	text, err := blob.ReadFile(ctx, blobs, id, snapshot.ManifestName)
	if err != nil {
		return origin{}, err
	}
	m, err := snapshot.Parse(text)
	if err != nil {
		return origin{}, nil
	}
	found = origin{m.Sandbox.TemplateDigest, m.ProjectID}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known == nil {
		o.known = map[string]origin{}
	}
	o.known[id] = found
	return found, nil
}

// keep forgets all snapshots except those that exist.
func (o *origins) keep(ids []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.known) <= len(ids) {
		return
	}
	exist := make(map[string]bool, len(ids))
	for _, id := range ids {
		exist[id] = true
	}
	for id := range o.known {
		if !exist[id] {
			delete(o.known, id)
		}
	}
}
