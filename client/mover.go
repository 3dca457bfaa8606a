package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bothy-dev/bothy"
)

const passphraseHeader = "X-Bothy-Passphrase"

// Mover is the server's bothy.SnapshotMover.
type Mover struct{ conn *conn }

// ExportSnapshot implements bothy.SnapshotMover.
func (m *Mover) ExportSnapshot(ctx context.Context, id, passphrase string, w io.Writer) error {
	r, err := m.conn.request(ctx, http.MethodGet, snapshotPath(id)+"/export", nil, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "*/*")
	if passphrase != "" {
		r.Header.Set(passphraseHeader, passphrase)
	}
	res, err := m.conn.send(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(w, res.Body); err != nil {
		return m.conn.brokenOff(ctx, err)
	}
	return nil
}

// ImportSnapshot implements bothy.SnapshotMover.
func (m *Mover) ImportSnapshot(ctx context.Context, name, passphrase string, body io.Reader) (*bothy.Snapshot, error) {
	q := url.Values{}
	if name != "" {
		q.Set("name", name)
	}
	h := http.Header{}
	if passphrase != "" {
		h.Set(passphraseHeader, passphrase)
	}
	n := new(bothy.Snapshot)
	return n, m.conn.upload(ctx, http.MethodPost, "/v1/snapshots/import", q, h, body, n)
}

// ArchiveKey implements bothy.SnapshotMover.
func (m *Mover) ArchiveKey(ctx context.Context) (*bothy.ArchiveKey, error) {
	return get[bothy.ArchiveKey](ctx, m.conn, http.MethodGet, "/v1/snapshots/key", nil, nil)
}

// Logs is the server's bothy.LogService.
type Logs struct{ conn *conn }

// Logs implements bothy.LogService.
func (l *Logs) Logs(ctx context.Context, id string, pid int) (*bothy.Logs, error) {
	q := url.Values{}
	if pid != 0 {
		q.Set("pid", strconv.Itoa(pid))
	}
	return get[bothy.Logs](ctx, l.conn, http.MethodGet, sandboxPath(id, "/logs"), q, nil)
}

// Limits is the server's bothy.LimitsService.
type Limits struct{ conn *conn }

// Limits implements bothy.LimitsService.
func (l *Limits) Limits(ctx context.Context) (*bothy.PlanLimits, error) {
	return get[bothy.PlanLimits](ctx, l.conn, http.MethodGet, "/v1/limits", nil, nil)
}
