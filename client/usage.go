package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
)

// Usage is the server's bothy.UsageService.
type Usage struct{ conn *conn }

// Usage implements bothy.UsageService.
func (u *Usage) Usage(ctx context.Context, q bothy.UsageQuery) (*bothy.UsageReport, error) {
	return get[bothy.UsageReport](ctx, u.conn, http.MethodGet, "/v1/usage", UsageQuery(q), nil)
}

// UsageQuery is the query of a usage request, for callers of Do.
func UsageQuery(q bothy.UsageQuery) url.Values {
	v := url.Values{}
	setTime(v, "from", q.From)
	setTime(v, "to", q.To)
	setIf(v, "group_by", strings.Join(q.GroupBy, ","))
	setIf(v, "project", q.Project)
	setIf(v, "sandbox", q.Sandbox)
	setIf(v, "template", q.Template)
	setIf(v, "cursor", q.Cursor)
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v
}
