package audit

import (
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// usedWindow is how long requests to a port are counted together, after the first of them
	// and usedEach requests that change something got a record each.
	usedWindow = time.Minute
	usedEach   = 60
)

// uses counts requests to ports of sandboxes by sender, since a single page can cause a hundred.
// The zero value is ready for use.
type uses struct {
	by map[usedBy]*counted
}

type usedBy struct{ token, link, sandbox string }

// admit reports whether r gets a record of its own, and otherwise counts it.
func (x *uses) admit(r *bothy.AuditRecord, changes bool, now time.Time) bool {
	if x.by == nil {
		x.by = map[usedBy]*counted{}
	}
	who := usedBy{token: r.TokenID, link: r.LinkID, sandbox: r.SandboxID}
	c := x.by[who]
	if changes && (c == nil || c.kept < usedEach) {
		if c == nil {
			c = &counted{began: now}
			x.by[who] = c
		}
		c.kept++
		return true
	}
	if c == nil {
		x.by[who] = &counted{began: now}
		return true
	}
	c.add(*r)
	return false
}

// due removes and returns what was counted for long enough, or everything.
func (x *uses) due(now time.Time, all bool) []bothy.AuditRecord {
	return takeDue(x.by, usedWindow, now, all)
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
