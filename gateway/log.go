package gateway

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// logSize is how many lines a gateway remembers.
	logSize = 1024
	// maxReason bounds the text of a line, which may name what a host has said.
	maxReason = 1000
	// foldWindow is how long equal decisions are counted instead of written.
	foldWindow = 10 * time.Second
	// logBurst and logRate limit the lines that a sandbox can cause: in a burst, and per second
	// in the long run.
	logBurst = 200
	logRate  = 20
)

// decisionLog holds a gateway's decisions in a bounded ring that readers can
// follow. Identical decisions are folded, and if a sandbox makes too many
// different ones they are only counted, so that it can fill neither memory nor
// a reader's disk.
type decisionLog struct {
	clock bothy.Clock

	mu sync.Mutex
	// ring holds the lines next-len(ring) to next-1; line i is at i%logSize.
	ring []bothy.NetworkDecision
	next uint64
	// grown is closed and replaced whenever a line is added.
	grown chan struct{}
	folds map[foldKey]*fold
	// due is when the first fold ends, if there is one.
	due    time.Time
	tokens float64
	filled time.Time
	timer  func() bool
	closed bool
}

// foldKey contains what makes two decisions equal.
type foldKey struct {
	protocol, name, address, rule, reason string
	port                                  uint16
	allowed, closed                       bool
}

// fold counts the decisions with one key since its last line.
type fold struct {
	sum   bothy.NetworkDecision
	count int
	until time.Time
}

func newDecisionLog(clock bothy.Clock) *decisionLog {
	return &decisionLog{
		clock: clock, grown: make(chan struct{}), folds: map[foldKey]*fold{},
		tokens: logBurst, filled: clock.Now(),
	}
}

// preload puts earlier lines before all others, and returns the number of the line after them.
func (l *decisionLog) preload(lines []bothy.NetworkDecision) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range lines {
		l.append(d)
	}
	return l.next
}

func keyOf(d bothy.NetworkDecision) foldKey {
	return foldKey{d.Protocol, d.Name, d.Address, d.Rule, d.Reason, d.Port, d.Allowed, d.Closed}
}

// record writes d, or counts it.
func (l *decisionLog) record(d bothy.NetworkDecision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	d.Time = l.clock.Now().UTC()
	if len(d.Reason) > maxReason {
		d.Reason = strings.ToValidUTF8(d.Reason[:maxReason], "") + "…"
	}
	if f := l.folds[keyOf(d)]; f != nil && d.Time.Before(f.until) {
		f.add(d)
		return
	}
	if !d.Time.Before(l.due) {
		l.flush(d.Time)
	}
	if len(l.folds) >= logSize || !l.take(d.Time) {
		l.overflow(d)
		return
	}
	l.append(d)
	l.fold(d)
}

// fold starts to count decisions that are equal to d.
func (l *decisionLog) fold(d bothy.NetworkDecision) *fold {
	f := &fold{until: d.Time.Add(foldWindow)}
	if len(l.folds) == 0 {
		l.due = f.until
	}
	l.folds[keyOf(d)] = f
	l.arm()
	return f
}

// overflow counts a decision for which there is no separate fold.
func (l *decisionLog) overflow(d bothy.NetworkDecision) {
	d.Name, d.Address, d.Port, d.Rule = "", "", 0, ""
	d.Reason = "further decisions, too many to list"
	f := l.folds[keyOf(d)]
	if f == nil {
		f = l.fold(d)
	}
	f.add(d)
}

func (f *fold) add(d bothy.NetworkDecision) {
	in, out := f.sum.BytesIn+d.BytesIn, f.sum.BytesOut+d.BytesOut
	f.sum = d
	f.sum.BytesIn, f.sum.BytesOut = in, out
	f.count++
}

// take spends one token of the rate limit.
func (l *decisionLog) take(now time.Time) bool {
	l.tokens = min(logBurst, l.tokens+now.Sub(l.filled).Seconds()*logRate)
	l.filled = now
	if l.tokens < 1 {
		return false
	}
	l.tokens--
	return true
}

// flush writes the folds that have ended.
func (l *decisionLog) flush(now time.Time) {
	l.due = now.Add(foldWindow)
	for k, f := range l.folds {
		if now.Before(f.until) {
			if f.until.Before(l.due) {
				l.due = f.until
			}
			continue
		}
		delete(l.folds, k)
		if f.count > 0 {
			f.sum.Repeated = f.count - 1
			l.append(f.sum)
		}
	}
}

func (l *decisionLog) append(d bothy.NetworkDecision) {
	if len(l.ring) < logSize {
		l.ring = append(l.ring, d)
	} else {
		l.ring[l.next%logSize] = d
	}
	l.next++
	close(l.grown)
	l.grown = make(chan struct{})
}

// arm makes sure that folds are flushed even if nothing else happens.
func (l *decisionLog) arm() {
	if l.timer == nil && len(l.folds) > 0 && !l.closed {
		l.timer = l.clock.AfterFunc(foldWindow, l.tick)
	}
}

func (l *decisionLog) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = nil
	if l.closed {
		return
	}
	l.flush(l.clock.Now())
	l.arm()
}

// close writes the lines that are still being folded. Readers get the rest and
// then end.
func (l *decisionLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	if l.timer != nil {
		l.timer()
	}
	l.flush(l.clock.Now().Add(2 * foldWindow))
	close(l.grown)
	l.grown = make(chan struct{})
}

// since returns the lines not older than t, oldest first, and the number of
// the line after them.
func (l *decisionLog) since(t time.Time) ([]bothy.NetworkDecision, uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []bothy.NetworkDecision
	for i := l.next - uint64(len(l.ring)); i < l.next; i++ {
		if d := l.ring[i%logSize]; !d.Time.Before(t) {
			lines = append(lines, d)
		}
	}
	return lines, l.next
}

// from returns a copy of the lines from number i on or, if there are none yet,
// a channel that signals new ones. It returns neither after close.
func (l *decisionLog) from(i uint64) (lines []bothy.NetworkDecision, next uint64, grown <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if first := l.next - uint64(len(l.ring)); i < first {
		lines = append(lines, bothy.NetworkDecision{
			Time: l.clock.Now().UTC(), Protocol: "log", Allowed: true,
			Reason: "lines lost: the reader was too slow", Repeated: int(first-i) - 1,
		})
		i = first
	}
	for ; i < l.next; i++ {
		lines = append(lines, l.ring[i%logSize])
	}
	if len(lines) == 0 && !l.closed {
		return nil, i, l.grown
	}
	return lines, i, nil
}

// followFrom calls fn for line number i and all after it until the log is
// closed.
func (l *decisionLog) followFrom(i uint64, fn func(bothy.NetworkDecision)) {
	for {
		lines, next, grown := l.from(i)
		for _, d := range lines {
			fn(d)
		}
		i = next
		if len(lines) > 0 {
			continue
		}
		if grown == nil {
			return
		}
		<-grown
	}
}

// follow calls fn for the lines not older than t, and then for each new one,
// until ctx ends, fn fails, or the log is closed.
func (l *decisionLog) follow(ctx context.Context, t time.Time, fn func(bothy.NetworkDecision) error) error {
	lines, i := l.since(t)
	for {
		for _, d := range lines {
			if err := fn(d); err != nil {
				return err
			}
		}
		var grown <-chan struct{}
		lines, i, grown = l.from(i)
		if len(lines) > 0 {
			continue
		}
		if grown == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-grown:
		}
	}
}
