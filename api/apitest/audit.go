package apitest

import (
	"context"
	"sync"

	"github.com/bothy-dev/bothy"
)

// Audit is a bothy.AuditService and a bothy.AuditRecorder.
type Audit struct {
	mu      sync.Mutex
	records []bothy.AuditRecord
	// Full, if set, is the reason why nothing more can be recorded.
	Full error
	// Asked is the last filter.
	Asked bothy.AuditFilter
}

// Admit implements bothy.AuditRecorder.
func (a *Audit) Admit() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Full
}

// SetFull changes Full.
func (a *Audit) SetFull(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Full = err
}

// Record implements bothy.AuditRecorder.
func (a *Audit) Record(r bothy.AuditRecord) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r.ID = int64(len(a.records) + 1)
	a.records = append(a.records, r)
}

// RecordUse implements bothy.AuditRecorder. Nothing is counted together here.
func (a *Audit) RecordUse(r bothy.AuditRecord, _ bool) { a.Record(r) }

// Records are those that were kept.
func (a *Audit) Records() []bothy.AuditRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]bothy.AuditRecord(nil), a.records...)
}

// Audit implements bothy.AuditService.
func (a *Audit) Audit(ctx context.Context, f bothy.AuditFilter) (bothy.Page[bothy.AuditRecord], error) {
	if _, err := bothy.Require(ctx, bothy.ScopeAdmin); err != nil {
		return bothy.Page[bothy.AuditRecord]{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Asked = f
	return bothy.Page[bothy.AuditRecord]{Items: append([]bothy.AuditRecord(nil), a.records...)}, nil
}

// CheckAudit implements bothy.AuditService.
func (a *Audit) CheckAudit(ctx context.Context, at int64, head string) (*bothy.AuditCheck, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return nil, err
	}
	if !caller.IsOperator() {
		return nil, bothy.Errorf(bothy.CodeForbidden, "only the default project checks").WithHint("Ask its owner.")
	}
	return &bothy.AuditCheck{OK: true, Records: int64(len(a.Records())), First: 1, Last: at, Head: head}, nil
}
