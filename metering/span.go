package metering

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// span is a running sandbox, with the time up to which it has been counted.
//
// Its lock is held while it is counted, and taken before Meter.mu. Its fields are changed under
// both, and may be read under either.
type span struct {
	mu sync.Mutex

	key      store.UsageKey
	read     func(context.Context) (bothy.MeterReading, error)
	started  int64
	milliCPU int64
	memoryMB int64

	at                   store.Moment
	cpu, egress, ingress int64 // the values of the counters at that time
	stopped              bool
}

func (s *span) mark(id string) store.UsageMark {
	return store.UsageMark{Sandbox: id, Started: s.started, Moment: s.at, CPU: s.cpu, Egress: s.egress, Ingress: s.ingress}
}

// keyOf returns the key that a sandbox's usage is counted under.
func keyOf(sb *store.Sandbox) store.UsageKey {
	return store.UsageKey{Project: sb.ProjectID, Template: sb.Template, Sandbox: sb.ID, Labels: labels(sb.Metadata), Root: sb.BudgetRoot}
}

// state is a MeterState: a mark, in the form in which it is stored with a sandbox.
type state struct {
	store.Moment
	CPU     int64 `json:"cpu"`
	Egress  int64 `json:"egress"`
	Ingress int64 `json:"ingress"`
}

// Starting returns where counting starts, to be stored with the sandbox: a server that is killed
// before it has written the first mark leaves at least this.
func (m *Meter) Starting(ctx context.Context, _ *store.Sandbox, read func(context.Context) (bothy.MeterReading, error)) []byte {
	s := state{Moment: m.now()}
	if r, err := read(ctx); err == nil {
		s.CPU, s.Egress, s.Ingress = microseconds(r.CPUSeconds), r.EgressBytes, r.IngressBytes
	}
	b, err := json.Marshal(s)
	if err != nil {
		m.log.Error("where a sandbox is counted from cannot be written", "error", err)
	}
	return b
}

// Started counts a sandbox from its MeterState on; an adopted one, which kept running without a
// server, from where the last server stopped. read returns its counters.
func (m *Meter) Started(ctx context.Context, sb *store.Sandbox, read func(context.Context) (bothy.MeterReading, error), adopted bool) {
	s := &span{
		key: keyOf(sb), read: read, milliCPU: int64(math.Round(sb.CPU * 1000)), memoryMB: int64(sb.MemoryMB), at: m.now(),
	}
	if sb.StartedAt != nil {
		s.started = sb.StartedAt.UnixNano()
	}
	from, ok := startOf(sb)
	var r bothy.MeterReading
	err := errNotRead
	if adopted || !ok {
		r, err = read(ctx)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if mark := m.left[sb.ID]; adopted && mark.Sandbox != "" && mark.Started == s.started {
		from, ok = state{mark.Moment, mark.CPU, mark.Egress, mark.Ingress}, true
	}
	s.begin(from, ok, r, err == nil)
	delete(m.left, sb.ID)
	m.spans[sb.ID] = s
	m.dueOf(sb.ID).mark = true
}

// errNotRead means that counters need not be read: they were just read.
var errNotRead = errors.New("not read")

func startOf(sb *store.Sandbox) (s state, ok bool) {
	return s, json.Unmarshal(sb.MeterState, &s) == nil
}

// begin sets the time from which the sandbox is counted. One that was started by an earlier
// release, which did not count, begins now.
func (s *span) begin(from state, known bool, r bothy.MeterReading, read bool) {
	if read {
		s.cpu, s.egress, s.ingress = microseconds(r.CPUSeconds), r.EgressBytes, r.IngressBytes
	}
	if !known {
		return
	}
	if !read {
		s.cpu, s.egress, s.ingress = from.CPU, from.Egress, from.Ingress
	}
	// A server that was killed may have lost the gateway's last counts: the counter then
	// continues from a lower value, which must not be counted as a loss twice.
	s.cpu, s.egress, s.ingress = min(s.cpu, from.CPU), min(s.egress, from.Egress), min(s.ingress, from.Ingress)
	ago := elapsed(from.Moment, s.at)
	s.at.Uptime -= ago
	s.at.Wall = s.at.Wall.Add(-ago)
}

// Recovered forgets the marks of sandboxes that the last server left and that are gone: how long
// they kept running is unknown.
func (m *Meter) Recovered() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id := range m.left {
		m.dueOf(id).gone = true
	}
	clear(m.left)
	// What was adopted has not been counted yet.
	m.written = stale(m.now())
}

// Changed takes over a sandbox's new metadata and budget.
func (m *Meter) Changed(ctx context.Context, sb *store.Sandbox) {
	key := keyOf(sb)
	m.mu.Lock()
	s := m.spans[sb.ID]
	same := s == nil || s.key == key
	m.storage.owners[sb.ID] = key
	m.mu.Unlock()
	if same {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m.countSpan(ctx, s, true)
	m.mu.Lock()
	defer m.mu.Unlock()
	s.key = key
}

// Stopped counts a sandbox for the last time: it has stopped, or is about to.
func (m *Meter) Stopped(ctx context.Context, id string) {
	m.mu.Lock()
	s := m.spans[id]
	m.mu.Unlock()
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m.countSpan(ctx, s, true)
	m.mu.Lock()
	defer m.mu.Unlock()
	s.stopped = true
	if m.spans[id] == s {
		delete(m.spans, id)
		m.dueOf(id).gone = true
	}
}

// countSpan counts a sandbox up to now, with its counters if requested. Its lock is held.
func (m *Meter) countSpan(ctx context.Context, s *span, counters bool) {
	if s.stopped {
		return
	}
	var r bothy.MeterReading
	err := errNotRead
	if counters {
		r, err = s.read(ctx)
	}
	now := m.now()
	m.mu.Lock()
	defer m.mu.Unlock()
	d := elapsed(s.at, now)
	ms := d.Milliseconds()
	var c store.Counts
	// milli-CPUs for milliseconds are microseconds of a CPU.
	c[store.VCPU], c[store.Memory] = s.milliCPU*ms, s.memoryMB*ms
	if err == nil { // a machine that has ended reports nothing more
		c[store.CPU] = growth(&s.cpu, microseconds(r.CPUSeconds))
		c[store.Egress] = growth(&s.egress, r.EgressBytes)
		c[store.Ingress] = growth(&s.ingress, r.IngressBytes)
	}
	s.at = now
	if c == (store.Counts{}) && d == 0 {
		return
	}
	due := m.dueOf(s.key.Sandbox)
	due.mark = true
	m.book(due.rows, s.key, now, d, c)
}

// book adds counts of the time d before now to the hours that it spans, and to the budgets. It
// is called with m.mu held.
func (m *Meter) book(rows map[rowKey]store.Counts, key store.UsageKey, now store.Moment, d time.Duration, c store.Counts) {
	split(now.Wall, d, c, func(hour int64, c store.Counts) {
		k := rowKey{key, hour}
		sum := rows[k]
		sum.Add(c)
		rows[k] = sum
		m.spend(key, hour, c)
	})
}

// split distributes counts for the time d before end over its hours, so that nothing is lost to
// rounding.
func split(end time.Time, d time.Duration, c store.Counts, fn func(hour int64, c store.Counts)) {
	const hour = int64(time.Hour / time.Millisecond)
	to := end.UnixMilli()
	from := to - d.Milliseconds()
	var given store.Counts
	for at := from; ; {
		h := floorDiv(at, hour)
		next := min((h+1)*hour, to)
		share := c
		if next < to {
			for i := range c {
				share[i] = muldiv(c[i], next-from, to-from)
			}
		}
		part := share
		for i := range part {
			part[i] -= given[i]
		}
		fn(h, part)
		given = share
		if at = next; at >= to {
			return
		}
	}
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// muldiv returns v·part/whole, where part is at most whole.
func muldiv(v, part, whole int64) int64 {
	return v/whole*part + int64(float64(v%whole)*(float64(part)/float64(whole)))
}

// growth returns by how much a counter grew, and moves its mark.
func growth(mark *int64, now int64) int64 {
	d := max(0, now-*mark)
	*mark += d
	return d
}

func microseconds(seconds float64) int64 { return int64(seconds * 1e6) }
