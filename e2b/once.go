package e2b

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"sync"

	"github.com/bothy-dev/bothy"
)

// once serialises requests with the same Idempotency-Key.
type once struct {
	mu   sync.Mutex
	busy map[string]chan struct{}
}

// enter waits for the others, or for the request's end, and returns a function that lets the
// next one in.
func (o *once) enter(r *http.Request, key string) (leave func(), err error) {
	for {
		o.mu.Lock()
		wait := o.busy[key]
		if wait == nil {
			if o.busy == nil {
				o.busy = map[string]chan struct{}{}
			}
			done := make(chan struct{})
			o.busy[key] = done
			o.mu.Unlock()
			return func() {
				o.mu.Lock()
				delete(o.busy, key)
				o.mu.Unlock()
				close(done)
			}, nil
		}
		o.mu.Unlock()
		select {
		case <-wait:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// make makes a sandbox. If the client did not specify a network, and the project may not have
// all of it, it gets the largest named one.
func (d *Door) make(ctx context.Context, req bothy.SandboxCreate) (*bothy.Sandbox, error) {
	sb, err := d.Sandboxes.Create(ctx, req)
	said := req.Metadata[markInternet] != "" || req.Metadata[markNetwork] != ""
	if bothy.ErrorCode(err) != bothy.CodeQuota || said {
		return sb, err
	}
	l, lerr := d.Limits.Limits(ctx)
	if lerr != nil || slices.Contains(l.Sandbox.Networks, bothy.NetworkOpen) || !slices.Contains(l.Sandbox.Networks, bothy.NetworkRestricted) {
		return nil, err
	}
	req.Network = &bothy.Network{Mode: bothy.NetworkRestricted}
	return d.Sandboxes.Create(ctx, req)
}

// createOnce creates a sandbox, or finds the one created by an earlier request with the same
// Idempotency-Key if it still exists: the key is stored with it.
func (d *Door) createOnce(r *http.Request, req bothy.SandboxCreate) (*bothy.Sandbox, error) {
	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		return d.make(r.Context(), req)
	}
	if len(key) > 255 {
		return nil, invalid("the Idempotency-Key is longer than 255 characters")
	}
	fingerprint := req
	fingerprint.Secrets = nil // their hash would be stored with the sandbox
	asked, err := json.Marshal(fingerprint)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(asked)
	leave, err := d.once.enter(r, bothy.CallerFrom(r.Context()).ProjectID+" "+key)
	if err != nil {
		return nil, err
	}
	defer leave()
	p, err := d.Sandboxes.List(r.Context(), bothy.SandboxFilter{
		Metadata: map[string]string{markKey: key}, States: slices.Concat(statesOf["running"], statesOf["paused"]), Limit: 1,
	})
	if err != nil {
		return nil, err
	}
	mark := hex.EncodeToString(sum[:])
	if len(p.Items) == 0 {
		req.Metadata[markKey], req.Metadata[markKey+".of"] = key, mark
		return d.make(r.Context(), req)
	}
	if p.Items[0].Metadata[markKey+".of"] != mark {
		return nil, bothy.Errorf(bothy.CodeIdempotency, "the Idempotency-Key %q was used for another request", key)
	}
	return p.Items[0], nil
}
