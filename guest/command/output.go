package command

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Stream identifies an output of a command.
type Stream uint8

// The streams. A command with a terminal has only that one.
const (
	Stdout Stream = iota + 1
	Stderr
	Terminal
)

// Chunk is a piece of output. Data must not be changed.
type Chunk struct {
	Stream Stream
	// Offset is the position of the first byte in all the output of the command, its streams
	// taken together.
	Offset int64
	Data   []byte
}

const (
	// segmentSize bounds one chunk.
	segmentSize = 32 << 10
	// minHeld is what an output may buffer even if all outputs together hold
	// too much. It is larger than any append.
	minHeld = 2 * segmentSize
)

// output holds the last bytes that a command wrote. With no reader attached, the oldest bytes
// make room for new ones. An attached reader loses nothing: append waits until the reader has
// what would be dropped, and so stalls the command instead of filling the guest's memory.
type output struct {
	limit int
	// total counts what all outputs of a manager hold.
	total    *atomic.Int64
	maxTotal int64

	mu       sync.Mutex
	segments []Chunk
	start    int64 // offset of the oldest byte held
	end      int64 // offset after the newest
	ended    bool
	dropped  bool // forgotten by the manager: holds nothing any more
	readers  map[*Reader]struct{}
	news     chan struct{} // closed when a waiting reader should look again
	room     chan struct{} // closed when a waiting append should look again
}

// append adds p, which is no longer than segmentSize and remains the caller's.
func (o *output) append(s Stream, p []byte) {
	for len(p) > 0 {
		o.mu.Lock()
		if o.dropped {
			o.end += int64(len(p))
			o.start = o.end
			o.mu.Unlock()
			return
		}
		if o.makeRoom(len(p)) {
			o.push(s, p)
			wake(&o.news)
			o.mu.Unlock()
			return
		}
		if o.room == nil {
			o.room = make(chan struct{})
		}
		room := o.room
		o.mu.Unlock()
		<-room
	}
}

// makeRoom drops old bytes until n more fit, and reports whether they do.
func (o *output) makeRoom(n int) bool {
	limit := int64(o.limit)
	if o.total.Load()+int64(n) > o.maxTotal {
		limit = min(limit, minHeld)
	}
	excess := o.end - o.start + int64(n) - limit
	if excess <= 0 {
		return true
	}
	cut := o.start + excess
	for r := range o.readers {
		if r.next < cut {
			return false
		}
	}
	o.trim(cut)
	return true
}

// trim drops the bytes before an offset.
func (o *output) trim(cut int64) {
	drop := 0
	for drop < len(o.segments) {
		c := &o.segments[drop]
		if c.Offset+int64(len(c.Data)) > cut {
			if skip := cut - c.Offset; skip > 0 {
				c.Data, c.Offset = c.Data[skip:], cut
			}
			break
		}
		drop++
	}
	clear(o.segments[:drop])
	o.segments = o.segments[drop:]
	o.total.Add(o.start - cut)
	o.start = cut
}

func (o *output) push(s Stream, p []byte) {
	last := len(o.segments) - 1
	if last >= 0 && o.segments[last].Stream == s && len(o.segments[last].Data)+len(p) <= segmentSize {
		o.segments[last].Data = append(o.segments[last].Data, p...)
	} else {
		o.segments = append(o.segments, Chunk{s, o.end, append([]byte(nil), p...)})
	}
	o.end += int64(len(p))
	o.total.Add(int64(len(p)))
}

// close marks the end: readers stop once they have what is held.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	wake(&o.news)
}

// drop discards the buffer, for good.
func (o *output) drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.total.Add(o.start - o.end)
	o.segments, o.start, o.dropped, o.ended = nil, o.end, true, true
	wake(&o.news)
	wake(&o.room)
}

func (o *output) bounds() (start, end int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.start, o.end
}

// attach adds a reader that starts at an offset, or at the oldest buffered one
// if that is later. A negative offset means from now on.
func (o *output) attach(from int64) *Reader {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := &Reader{o: o, next: from}
	if from < 0 {
		r.next = o.end
	}
	if r.next < o.start {
		r.next, r.truncated = o.start, true
	}
	if o.readers == nil {
		o.readers = make(map[*Reader]struct{}, 1)
	}
	o.readers[r] = struct{}{}
	return r
}

// wake wakes all waiting readers.
func wake(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}

// Reader follows the output of a command. It must be closed: while it is open
// the command waits for it. It is for one goroutine.
type Reader struct {
	o         *output
	next      int64
	truncated bool
}

// ErrTick is returned by Next when its tick came first.
var ErrTick = errors.New("tick")

// Next returns the next chunk, waiting for it if need be, and io.EOF after the
// last. While it waits, a tick makes it return ErrTick.
func (r *Reader) Next(ctx context.Context, tick <-chan time.Time) (Chunk, error) {
	for {
		c, news, err := r.poll()
		if news == nil {
			return c, err
		}
		select {
		case <-news:
		case <-tick:
			return Chunk{}, ErrTick
		case <-ctx.Done():
			return Chunk{}, ctx.Err()
		}
	}
}

// poll returns buffered output, or a channel to wait on.
func (r *Reader) poll() (Chunk, <-chan struct{}, error) {
	o := r.o
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.next < o.start { // only after drop
		r.next, r.truncated = o.start, true
	}
	if r.next < o.end {
		c := o.find(r.next)
		r.next += int64(len(c.Data))
		wake(&o.room)
		return c, nil, nil
	}
	if o.ended {
		return Chunk{}, nil, io.EOF
	}
	if o.news == nil {
		o.news = make(chan struct{})
	}
	return Chunk{}, o.news, nil
}

// find returns the rest of the segment that holds an offset.
func (o *output) find(at int64) Chunk {
	lo, hi := 0, len(o.segments)-1
	for lo < hi {
		if mid := (lo + hi + 1) / 2; o.segments[mid].Offset <= at {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	c := o.segments[lo]
	skip := at - c.Offset
	return Chunk{c.Stream, at, c.Data[skip:len(c.Data):len(c.Data)]}
}

// Truncated reports whether output that this reader asked for was gone.
func (r *Reader) Truncated() bool { return r.truncated }

// Close lets the command continue without this reader.
func (r *Reader) Close() {
	r.o.mu.Lock()
	defer r.o.mu.Unlock()
	delete(r.o.readers, r)
	wake(&r.o.room)
}
