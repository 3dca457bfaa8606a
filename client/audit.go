package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bothy-dev/bothy"
)

// Audit is the server's bothy.AuditService.
type Audit struct{ conn *conn }

// Audit implements bothy.AuditService.
func (a *Audit) Audit(ctx context.Context, f bothy.AuditFilter) (bothy.Page[bothy.AuditRecord], error) {
	q := url.Values{}
	setIf(q, "action", f.Action)
	setIf(q, "token", f.TokenID)
	setIf(q, "sandbox", f.SandboxID)
	setIf(q, "project", f.ProjectID)
	setTime(q, "since", f.Since)
	setTime(q, "until", f.Until)
	if f.Refused {
		q.Set("refused", "true")
	}
	if f.Oldest {
		q.Set("order", "oldest")
	}
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	if f.Cursor > 0 {
		q.Set("cursor", strconv.FormatInt(f.Cursor, 10))
	}
	p, err := get[bothy.Page[bothy.AuditRecord]](ctx, a.conn, http.MethodGet, "/v1/audit", q, nil)
	if err != nil {
		return bothy.Page[bothy.AuditRecord]{}, err
	}
	return *p, nil
}

// CheckAudit implements bothy.AuditService.
func (a *Audit) CheckAudit(ctx context.Context, at int64, head string) (*bothy.AuditCheck, error) {
	q := url.Values{}
	if head != "" {
		q.Set("at", strconv.FormatInt(at, 10))
		q.Set("head", head)
	}
	return get[bothy.AuditCheck](ctx, a.conn, http.MethodGet, "/v1/audit/verify", q, nil)
}
