package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bothy-dev/bothy"
)

// Snapshots is the server's bothy.SnapshotService.
type Snapshots struct{ conn *conn }

type forkRequest struct {
	Count          int               `json:"count,omitempty"`
	Name           string            `json:"name,omitempty"`
	TimeoutSeconds *int              `json:"timeout_seconds,omitempty"`
	Env            map[string]string `json:"env,omitempty"`
	Metadata       map[string]string `json:"metadata,omitempty"`
	Network        *bothy.Network    `json:"network,omitempty"`
	Secrets        bool              `json:"secrets,omitempty"`
}

// ForkJSON is the JSON of a fork request, for callers of Do.
func ForkJSON(req bothy.ForkRequest) any {
	return forkRequest{
		Count: req.Count, Name: req.Name, TimeoutSeconds: req.TimeoutSeconds,
		Env: req.Env, Metadata: req.Metadata, Network: req.Network, Secrets: req.Secrets,
	}
}

func snapshotPath(id string) string { return "/v1/snapshots/" + url.PathEscape(id) }

// snapshotRequest is the body of a pause and of a live snapshot.
type snapshotRequest struct {
	Memory bool          `json:"memory"`
	Name   string        `json:"name,omitempty"`
	Wait   bothy.Durable `json:"wait,omitempty"`
}

// Pause implements bothy.SnapshotService.
func (s *Snapshots) Pause(ctx context.Context, id string, o bothy.PauseOptions) (*bothy.Snapshot, error) {
	in := snapshotRequest{!o.FilesOnly, o.Name, o.Wait}
	var out struct{ Snapshot *bothy.Snapshot }
	if err := s.conn.call(ctx, http.MethodPost, sandboxPath(id, "/pause"), nil, in, &out); err != nil {
		return nil, err
	}
	return out.Snapshot, nil
}

// Resume implements bothy.SnapshotService. The id may be a sandbox's or a
// snapshot's.
func (s *Snapshots) Resume(ctx context.Context, id string, o bothy.ResumeOptions) (*bothy.Sandbox, error) {
	var in any
	if o.FilesOnly {
		in = map[string]bool{"memory": false}
	}
	b, err := get[bothy.Sandbox](ctx, s.conn, http.MethodPost, sandboxPath(id, "/resume"), nil, in)
	if bothy.ErrorCode(err) != bothy.CodeSandboxNotFound {
		return b, err
	}
	b, snapErr := get[bothy.Sandbox](ctx, s.conn, http.MethodPost, snapshotPath(id)+"/resume", nil, in)
	if bothy.ErrorCode(snapErr) == bothy.CodeSnapshotNotFound {
		return nil, err
	}
	return b, snapErr
}

// CreateSnapshot implements bothy.SnapshotService.
func (s *Snapshots) CreateSnapshot(ctx context.Context, id string, req bothy.SnapshotCreate) (*bothy.Snapshot, error) {
	in := snapshotRequest{!req.FilesOnly, req.Name, req.Wait}
	return get[bothy.Snapshot](ctx, s.conn, http.MethodPost, sandboxPath(id, "/snapshots"), nil, in)
}

// Snapshot implements bothy.SnapshotService.
func (s *Snapshots) Snapshot(ctx context.Context, id string) (*bothy.Snapshot, error) {
	return get[bothy.Snapshot](ctx, s.conn, http.MethodGet, snapshotPath(id), nil, nil)
}

// Snapshots implements bothy.SnapshotService.
func (s *Snapshots) Snapshots(ctx context.Context, f bothy.SnapshotFilter) (bothy.Page[*bothy.Snapshot], error) {
	q := pageQuery(f.Name, f.Limit, f.Cursor)
	setIf(q, "sandbox_id", f.SandboxID)
	var p bothy.Page[*bothy.Snapshot]
	err := s.conn.call(ctx, http.MethodGet, "/v1/snapshots", q, nil, &p)
	return p, err
}

// CompareSnapshots implements bothy.SnapshotService.
func (s *Snapshots) CompareSnapshots(ctx context.Context, since, id string, limit int) (*bothy.SnapshotChanges, error) {
	q := url.Values{"since": {since}, "limit": {strconv.Itoa(limit)}}
	return get[bothy.SnapshotChanges](ctx, s.conn, http.MethodGet, snapshotPath(id)+"/changes", q, nil)
}

// DeleteSnapshot implements bothy.SnapshotService.
func (s *Snapshots) DeleteSnapshot(ctx context.Context, id string) error {
	return s.conn.call(ctx, http.MethodDelete, snapshotPath(id), nil, nil, nil)
}

// Fork implements bothy.SnapshotService.
func (s *Snapshots) Fork(ctx context.Context, id string, req bothy.ForkRequest) ([]*bothy.Sandbox, error) {
	return items[*bothy.Sandbox](ctx, s.conn, http.MethodPost, sandboxPath(id, "/fork"), nil, ForkJSON(req))
}

// Rollback implements bothy.SnapshotService.
func (s *Snapshots) Rollback(ctx context.Context, id, snapshotID string) (*bothy.Sandbox, error) {
	in := map[string]string{"snapshot_id": snapshotID}
	return get[bothy.Sandbox](ctx, s.conn, http.MethodPost, sandboxPath(id, "/rollback"), nil, in)
}
