package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

const (
	// DefaultLimit and MaxLimit bound a page.
	DefaultLimit = 100
	MaxLimit     = 1000
)

// Audit implements bothy.AuditService.
func (l *Log) Audit(ctx context.Context, f bothy.AuditFilter) (bothy.Page[bothy.AuditRecord], error) {
	p := bothy.Page[bothy.AuditRecord]{Items: []bothy.AuditRecord{}}
	caller, err := bothy.Require(ctx, bothy.ScopeAdmin)
	if err != nil {
		return p, err
	}
	if !caller.IsOperator() {
		if f.ProjectID != "" && f.ProjectID != caller.ProjectID {
			return p, bothy.Errorf(bothy.CodeProjectNotFound, "there is no project %q", f.ProjectID).WithHint("`bothy project ls` lists them.")
		}
		f.ProjectID = caller.ProjectID
	}
	if f.Limit <= 0 {
		f.Limit = DefaultLimit
	}
	f.Limit = min(f.Limit, MaxLimit)
	l.flush()
	limit := f.Limit
	f.Limit++ // one more shows whether there are more
	lines, err := l.store.AuditLines(ctx, f)
	if err != nil {
		return p, err
	}
	more := len(lines) > limit
	for _, x := range lines[:min(len(lines), limit)] {
		r := bothy.AuditRecord{}
		if err := json.Unmarshal([]byte(x.Record), &r); err != nil {
			return p, fmt.Errorf("audit: record %d cannot be read: %w", x.ID, err)
		}
		r.ID, r.Hash = x.ID, x.Hash
		p.Items = append(p.Items, r)
	}
	if more {
		p.NextCursor = strconv.FormatInt(p.Items[limit-1].ID, 10)
	}
	return p, nil
}

// CheckAudit implements bothy.AuditService.
func (l *Log) CheckAudit(ctx context.Context, at int64, head string) (*bothy.AuditCheck, error) {
	// The chain goes through the records of all projects.
	if _, err := bothy.RequireOperator(ctx, bothy.ScopeAdmin); err != nil {
		return nil, err
	}
	l.flush()
	for {
		ends, err := l.store.AuditEnds(ctx)
		if err != nil {
			return nil, err
		}
		c, err := l.walk(ctx, ends, at, head)
		if err != nil || c.OK {
			return c, err
		}
		now, err := l.store.AuditEnds(ctx)
		if err != nil || now.AfterID == ends.AfterID {
			return c, err
		}
		// The oldest were deleted meanwhile.
	}
}

func (l *Log) walk(ctx context.Context, ends store.AuditEnds, at int64, head string) (*bothy.AuditCheck, error) {
	if head != "" && at <= ends.AfterID {
		return nil, bothy.Errorf(bothy.CodeInvalid, "record %d is no longer kept; the first is %d", at, ends.AfterID+1).
			WithHint("Give a later record, or none.")
	}
	c := newChain(ends.AfterID, ends.AfterHash)
	for c.OK && c.Last < ends.LastID {
		lines, err := l.store.AuditLines(ctx, bothy.AuditFilter{Oldest: true, Cursor: c.Last, Limit: MaxLimit})
		if err != nil {
			return nil, err
		}
		if len(lines) == 0 {
			c.fail(c.Last+1, "it and all that followed are gone")
		}
		for _, x := range lines {
			if !c.OK || x.ID > ends.LastID { // written meanwhile
				break
			}
			c.step(x.ID, x.Record, x.Hash)
			if c.OK && head != "" && x.ID == at && x.Hash != head {
				c.fail(x.ID, "its hash is not the one that was kept")
			}
		}
	}
	switch {
	case !c.OK:
	case c.Head != ends.LastHash:
		c.fail(c.Last, "the chain ended in another hash")
	case head != "" && at > c.Last:
		c.fail(c.Last+1, fmt.Sprintf("the chain continued at least to record %d", at))
	}
	return &c.AuditCheck, nil
}

// CheckExport checks records as printed by `bothy audit --oldest --json`, one per line, without
// a server. The record before the first is not known, unless it is the first of all.
func CheckExport(r io.Reader) (*bothy.AuditCheck, error) {
	d := json.NewDecoder(r)
	var c *chain
	for {
		var x bothy.AuditRecord
		if err := d.Decode(&x); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, bothy.Errorf(bothy.CodeInvalid, "the export cannot be read: %v", err).
				WithHint("Export it with `bothy audit --oldest --json`.")
		}
		hash := x.Hash
		x.Hash = ""
		text, err := json.Marshal(x)
		if err != nil {
			return nil, err
		}
		if c == nil {
			c = newChain(x.ID-1, "")
			if x.ID > 1 {
				c.Records, c.Last, c.Head = 1, x.ID, hash
				continue
			}
		}
		if c.step(x.ID, string(text), hash); !c.OK {
			break
		}
	}
	if c == nil {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the export contains no record").
			WithHint("Export it with `bothy audit --oldest --json`.")
	}
	return &c.AuditCheck, nil
}

// chain is a walk along the records.
type chain struct{ bothy.AuditCheck }

func newChain(after int64, hash string) *chain {
	return &chain{bothy.AuditCheck{OK: true, First: after + 1, Last: after, Head: hash}}
}

// step checks the next record.
func (c *chain) step(id int64, record, hash string) {
	var r bothy.AuditRecord
	switch {
	case id != c.Last+1:
		c.fail(c.Last+1, "it is gone")
	case hash != link(c.Head, record):
		c.fail(id, "it, or the one before it, is not what was written")
	case json.Unmarshal([]byte(record), &r) != nil || r.ID != id:
		c.fail(id, "it is not a record of this number")
	default:
		c.Records, c.Last, c.Head = c.Records+1, id, hash
	}
}

func (c *chain) fail(id int64, detail string) { c.OK, c.Broken, c.Detail = false, id, detail }
