package audit

import (
	"net/http"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// refusedWindow is how long an address's refused requests are counted
	// together, after the first refusedEach of them got their own record.
	refusedWindow = time.Minute
	refusedEach   = 10
	// maxRefused limits the addresses that are counted separately. All others count as one.
	maxRefused = 1024
)

func refusal(status int) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusNotFound
}

// refusals counts refused attempts by client, so that guessing keys cannot fill the disk with
// records. The zero value is ready for use.
type refusals struct {
	by map[refusedBy]*counted
}

type refusedBy struct {
	remote, token string
	code          bothy.Code
}

// counted are records of one kind, of which the first few are kept and the others only counted.
type counted struct {
	began time.Time
	kept  int
	// last is the newest of those without a record; its Count says how many there are.
	last bothy.AuditRecord
}

// add counts an attempt that gets no record of its own.
func (c *counted) add(r bothy.AuditRecord) {
	r.Count = c.last.Count + 1
	// These fields differ between attempts.
	r.RequestID, r.Object = "", ""
	c.last = r
}

// takeDue removes counts that are as old as the window, or all of them.
func takeDue[K comparable](by map[K]*counted, window time.Duration, now time.Time, all bool) (out []bothy.AuditRecord) {
	for who, c := range by {
		if age := now.Sub(c.began); !all && age >= 0 && age < window {
			continue
		}
		if c.last.Count > 0 {
			out = append(out, c.last)
		}
		delete(by, who)
	}
	return out
}

// admit reports whether r gets a record of its own, and otherwise counts it.
func (x *refusals) admit(r *bothy.AuditRecord, now time.Time) bool {
	if x.by == nil {
		x.by = map[refusedBy]*counted{}
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
		c = &counted{began: now}
		x.by[who] = c
	}
	if c.kept < refusedEach {
		c.kept++
		return true
	}
	c.add(*r)
	c.last.Command, c.last.SandboxID = "", "" // these differ, too
	return false
}

// due removes and returns what was counted for long enough, or everything.
func (x *refusals) due(now time.Time, all bool) []bothy.AuditRecord {
	return takeDue(x.by, refusedWindow, now, all)
}
