package gateway

import "sync/atomic"

// What one sandbox may have its gateway hold, besides the buffers of its connections.
const (
	// maxIntercepted and maxRequests bound the connections to hosts that receive secrets, and the
	// requests in flight on all of them. Each may hold a head of interceptedHead bytes, in
	// maxFields fields, and an answer's.
	maxIntercepted  = 128
	maxRequests     = 256
	maxStreams      = 100 // requests in flight on one connection
	interceptedHead = 32 << 10
	maxFields       = 256
	// maxFrame is the length of the longest HTTP/2 frame, each of which is held whole.
	maxFrame = 16 << 10
	// headBudget is how much the beginnings of all connections that have not yet said which host
	// they are for may hold, beyond the first firstBytes of each.
	headBudget = 16 << 20
	firstBytes = 4 << 10
)

// quota is what one sandbox may hold of something.
type quota struct {
	most int64
	held atomic.Int64
}

// take reports whether n more may be held, which then are until they are put back.
func (q *quota) take(n int64) bool {
	if q.held.Add(n) > q.most {
		q.held.Add(-n)
		return false
	}
	return true
}

func (q *quota) put(n int64) { q.held.Add(-n) }

// window returns how much of a body an HTTP/2 connection may hold for an end that does not read,
// given n intercepted connections of its sandbox. As with the buffers of TCP, the first get
// windows that are large enough for any distance.
func window(n int64) int {
	const least, most, all = 64 << 10, 4 << 20, 8 << 20
	return int(max(least, min(most, all/max(n, 1))))
}
