package audit

import (
	"net/http"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// refusedWindow is for how long what one address is refused is counted
	// together, after the first refusedEach of them have a record each.
	refusedWindow = time.Minute
	refusedEach   = 10
	// maxRefused bounds the addresses that are told apart. All further ones
	// count as one.
	maxRefused = 1024
)

func refusal(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusNotFound
}

// refusals counts refused attempts by who made them, so that somebody who tries
// keys cannot fill the disk with records of it. The zero value is ready.
type refusals struct {
	by map[refusedBy]*refusedCount
}

type refusedBy struct {
	remote, token string
	code          bothy.Code
}

type refusedCount struct {
	began time.Time
	seen  int
	// last is the newest of those that have no record; its Count says how many
	// there are.
	last bothy.AuditRecord
}

// admit reports whether r gets a record of its own, and otherwise counts it.
func (x *refusals) admit(r *bothy.AuditRecord, now time.Time) bool {
	if x.by == nil {
		x.by = map[refusedBy]*refusedCount{}
	}
	who := refusedBy{remote: r.Remote, token: r.TokenID, code: r.Code}
	c := x.by[who]
	if c == nil && len(x.by) >= maxRefused {
		who = refusedBy{code: r.Code}
		if c = x.by[who]; c != nil {
			r.Remote = ""
		}
	}
	if c == nil {
		c = &refusedCount{began: now}
		x.by[who] = c
	}
	c.seen++
	if c.seen <= refusedEach {
		return true
	}
	n := c.last.Count
	c.last = *r
	c.last.Count = n + 1
	// These differ from one to the next.
	c.last.Command, c.last.RequestID, c.last.Object, c.last.SandboxID = "", "", "", ""
	return false
}

// due takes out what was counted long enough, or all of it.
func (x *refusals) due(now time.Time, all bool) []bothy.AuditRecord {
	var out []bothy.AuditRecord
	for who, c := range x.by {
		if age := now.Sub(c.began); !all && age >= 0 && age < refusedWindow {
			continue
		}
		if c.last.Count > 0 {
			out = append(out, c.last)
		}
		delete(x.by, who)
	}
	return out
}
