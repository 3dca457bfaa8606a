package audit

import (
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// usedWindow is for how long requests to a port are counted together, after the
	// first of them and usedEach that change something have a record each.
	usedWindow = time.Minute
	usedEach   = 60
)

// uses counts requests to ports of sandboxes by who sent them, since a page alone
// can be a hundred. The zero value is ready.
type uses struct {
	by map[usedBy]*useCount
}

type usedBy struct{ token, link, sandbox string }

type useCount struct {
	began   time.Time
	changes int
	// last is the newest of those that have no record; its Count says how many
	// there are.
	last bothy.AuditRecord
}

// admit reports whether r gets a record of its own, and otherwise counts it.
func (x *uses) admit(r *bothy.AuditRecord, changes bool, now time.Time) bool {
	if x.by == nil {
		x.by = map[usedBy]*useCount{}
	}
	who := usedBy{token: r.TokenID, link: r.LinkID, sandbox: r.SandboxID}
	c := x.by[who]
	if changes && (c == nil || c.changes < usedEach) {
		if c == nil {
			c = &useCount{began: now}
			x.by[who] = c
		}
		c.changes++
		return true
	}
	if c == nil {
		x.by[who] = &useCount{began: now}
		return true
	}
	n := c.last.Count
	c.last = *r
	c.last.Count = n + 1
	c.last.RequestID, c.last.Object = "", "" // these differ from one to the next
	return false
}

// due takes out what was counted long enough, or all of it.
func (x *uses) due(now time.Time, all bool) []bothy.AuditRecord {
	var out []bothy.AuditRecord
	for who, c := range x.by {
		if age := now.Sub(c.began); !all && age >= 0 && age < usedWindow {
			continue
		}
		if c.last.Count > 0 {
			out = append(out, c.last)
		}
		delete(x.by, who)
	}
	return out
}

// RecordUse implements bothy.AuditRecorder.
func (l *Log) RecordUse(r bothy.AuditRecord, changes bool) {
	l.mu.Lock()
	own := refusal(r.Status) || l.used.admit(&r, changes, l.o.Now())
	l.mu.Unlock()
	if own {
		l.Record(r)
	}
}
