package apitest

import (
	"context"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

// Usage is a bothy.UsageService that gives every query the same answer.
type Usage struct {
	mu   sync.Mutex
	last bothy.UsageQuery
}

// Last is the last query.
func (u *Usage) Last() bothy.UsageQuery {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last
}

// Usage implements bothy.UsageService.
func (u *Usage) Usage(ctx context.Context, q bothy.UsageQuery) (*bothy.UsageReport, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeSandboxesRead); err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = q
	r := &bothy.UsageReport{
		From: time.Unix(0, 0).UTC(), To: time.Unix(86400, 0).UTC(), GroupBy: q.GroupBy, Currency: "EUR",
		Items: []bothy.UsageItem{{
			Day: "1970-01-01", Sandbox: "sbx-1", Labels: map[string]string{"team": "=1+1"},
			Usage: bothy.Usage{VCPUSeconds: 1.5, EgressBytes: 7, Cost: 0.25},
		}},
		Total: bothy.Usage{VCPUSeconds: 1.5, EgressBytes: 7, Cost: 0.25}, AsOf: time.Unix(86400, 0).UTC(),
	}
	if q.Cursor == "" && q.Limit == 1 {
		r.NextCursor = "1"
	}
	return r, nil
}
