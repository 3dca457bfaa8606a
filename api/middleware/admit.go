package middleware

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/inflight"
)

const (
	// smallBytes is how much memory every request may use without being counted: their number is
	// limited.
	smallBytes = 64 << 10
	// DecodeFactor is how many copies of a JSON body are in memory while it is decoded and
	// checked, and decodedFactor after that.
	DecodeFactor, decodedFactor = 6, 2
	// itemBytes is roughly the memory for an item of a page until it is sent.
	itemBytes = 16 << 10
)

// load is what a request holds of the server's limits.
type load struct {
	admitted bool
	memory   *inflight.Memory
	body     int64
}

// Admit reserves a place for a request among those of its project until it ends. It may wait for
// that. It may be called again for an admitted request, and then does nothing.
func (s *Chain) Admit(r *http.Request) (*http.Request, error) {
	info, caller, limits := RequestFrom(r.Context()), bothy.CallerFrom(r.Context()), s.Inflight
	if limits == nil || info == nil || caller == nil || info.admitted {
		return r, nil
	}
	pool := limits.Requests
	if StaysOpen(r, info.Operation) {
		pool = limits.Streams
	}
	if err := s.refuseOverLimit(r, caller); err != nil {
		return r, err
	}
	n, err := pool.Acquire(r.Context(), caller.ProjectID, 1)
	if err != nil {
		return r, err
	}
	info.OnRelease(func() { pool.Release(caller.ProjectID, n) })
	info.admitted, info.memory = true, limits.Memory.Memory(caller.ProjectID)
	info.OnRelease(info.memory.End)
	r = r.WithContext(bothy.WithMemoryAccount(r.Context(), info.memory))
	return r, takeForPage(r)
}

// AdmitOther is Admit for a request that another protocol decodes.
func (s *Chain) AdmitOther(r *http.Request) (*http.Request, error) {
	r, err := s.Admit(r)
	if err == nil {
		err = takeForBody(r)
	}
	return r, err
}

// StaysOpen reports whether a request does not end by itself.
func StaysOpen(r *http.Request, c *Operation) bool {
	if r.Header.Get("Upgrade") != "" || WantsEvents(r.Header.Get("Accept")) && r.Method == http.MethodGet {
		return true
	}
	if c == nil || len(c.Returns) == 0 {
		return false
	}
	for _, f := range c.Returns { // a call that can answer with events was asked for them
		if f.ContentType == EventsType && (len(c.Returns) == 1 || WantsEvents(r.Header.Get("Accept"))) {
			return true
		}
	}
	return false
}

// takeForPage reserves memory for a page of a list before it is read.
func takeForPage(r *http.Request) error {
	limit, err := strconv.ParseInt(r.URL.Query().Get("limit"), 10, 32)
	if err != nil || r.Method != http.MethodGet || limit*itemBytes <= smallBytes {
		return nil
	}
	return bothy.TakeMemory(r.Context(), min(limit, 1000)*itemBytes)
}

// takeForBody reserves memory for the body of a request that another protocol decodes.
func takeForBody(r *http.Request) error {
	if r.Body == nil || r.ContentLength == 0 {
		return nil
	}
	if r.ContentLength > smallBytes {
		return bothy.TakeMemory(r.Context(), r.ContentLength*DecodeFactor)
	}
	if r.ContentLength < 0 {
		r.Body = &countedBody{ReadCloser: r.Body, ctx: r.Context()}
	}
	return nil
}

// countedBody reserves memory as a body of unknown length arrives.
type countedBody struct {
	io.ReadCloser
	ctx         context.Context
	read, taken int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.read += int64(n); b.read > max(b.taken, smallBytes) {
		more := max(b.read, smallBytes)
		if err := bothy.TakeMemory(b.ctx, more*DecodeFactor); err != nil {
			return 0, err
		}
		b.taken += more
	}
	return n, err
}

// Decoded releases the memory that a body used while it was decoded.
func Decoded(ctx context.Context) {
	if info := RequestFrom(ctx); info != nil && info.memory != nil && info.body > 0 {
		info.memory.Keep(info.body * decodedFactor)
	}
}

// readAll reads a body of size bytes, or of an unknown length if size is negative, as far as
// memory is available for it.
func readAll(ctx context.Context, r io.Reader, size int64) (b []byte, err error) {
	room := max(size, 0)
	if size < 0 {
		room = smallBytes
	}
	for {
		if room > smallBytes {
			if err := bothy.TakeMemory(ctx, (room-int64(cap(b)))*DecodeFactor); err != nil {
				return nil, err
			}
		}
		b = append(make([]byte, 0, room), b...)
		n, err := io.ReadFull(r, b[len(b):room])
		b = b[:len(b)+n]
		switch {
		case size < 0 && (err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF)):
			return b, nil
		case size >= 0 && err == nil:
			// The end after the last byte must be read as well.
			_, err = io.CopyN(io.Discard, r, 1)
			if err == io.EOF {
				err = nil
			}
			return b, err
		case err != nil:
			return nil, err
		}
		room *= 2
	}
}
