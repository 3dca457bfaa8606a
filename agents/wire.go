package agents

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy/internal/bounded"
	"github.com/bothy-dev/bothy/internal/random"
	"github.com/bothy-dev/bothy/internal/repack"
)

const (
	// maxDocument limits an answer of a service, maxFailure one that is an error, and maxPage
	// what the worker needs of a page of events.
	maxDocument = 8 << 20
	maxFailure  = 64 << 10
	maxPage     = 16 << 20
	// maxEvent limits an event, and maxEvents and maxRawPage a page of them.
	maxEvent   = 8 << 20
	maxEvents  = 1000
	maxRawPage = 256 << 20
	// answerTime is how long an answer may take to arrive, except for streams and archives.
	answerTime = time.Minute
	// largeAnswers is how many answers of more than smallAnswer bytes are read at once for a
	// project.
	largeAnswers = 4
	smallAnswer  = 256 << 10

	// What a piece of work, the work of a project, and all work may keep of events in memory.
	pieceMemory   = 32 << 20
	projectMemory = 128 << 20
	allMemory     = 256 << 20
	// idMemory is about what the SDK keeps of each call for as long as it works.
	idMemory = 256
	// maxText is where a text in an event is cut, such as a file that the user has sent.
	maxText = 4 << 20
	// maxWholeText limits it before.
	maxWholeText = 64 << 20
)

// A wire is the transport to a service that a user chose. It does not trust the service: answers
// are not decompressed, each has a limit, every document is unambiguous, and of events only what
// the worker needs is passed on.
type wire struct {
	next  http.RoundTripper
	large chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	read := w.document
	switch {
	case strings.HasSuffix(r.URL.Path, "/events/stream"):
		return w.open(r, func(body io.ReadCloser) io.ReadCloser {
			return &stream{Closer: body, from: bufio.NewReaderSize(&cutter{from: body}, 16<<10), account: accountOf(r.Context())}
		})
	case strings.HasSuffix(r.URL.Path, "/content"):
		return w.open(r, func(body io.ReadCloser) io.ReadCloser {
			return struct {
				io.Reader
				io.Closer
			}{bounded.Reader(r.Context(), body, repack.MaxArchive), body}
		})
	case strings.HasSuffix(r.URL.Path, "/events") && r.Method == http.MethodGet:
		read = w.page
	case strings.HasSuffix(r.URL.Path, "/events"), strings.HasSuffix(r.URL.Path, "/stop"):
		read = w.nothing
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerTime)
	defer cancel()
	res, err := w.send(r.Clone(ctx))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode >= 400 {
		read = w.failure
	}
	b, err := read(r.WithContext(ctx), res.Body)
	if err != nil {
		return nil, fmt.Errorf("the answer to %s %s is refused: %w", r.Method, r.URL.Path, err)
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	return res, nil
}

// send sends a request. The transport decompresses only what it has itself asked to be compressed.
func (w *wire) send(r *http.Request) (*http.Response, error) {
	r.Header.Set("Accept-Encoding", "identity")
	res, err := w.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if e := res.Header.Get("Content-Encoding"); e != "" && e != "identity" || res.Uncompressed {
		res.Body.Close()
		return nil, fmt.Errorf("the answer to %s %s is compressed (%.20q), which was not asked for", r.Method, r.URL.Path, e)
	}
	return res, nil
}

// open sends a request whose answer is read as it arrives.
func (w *wire) open(r *http.Request, wrap func(io.ReadCloser) io.ReadCloser) (*http.Response, error) {
	res, err := w.send(r.Clone(r.Context()))
	if err != nil {
		return nil, err
	}
	if res.StatusCode < 400 {
		res.Body = wrap(res.Body)
		return res, nil
	}
	defer res.Body.Close()
	b, err := w.failure(r, res.Body)
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	return res, err
}

// enter waits until one more large answer may be read.
func (w *wire) enter(ctx context.Context) (leave func(), err error) {
	select {
	case w.large <- struct{}{}:
		return func() { <-w.large }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// document reads an answer in JSON.
func (w *wire) document(r *http.Request, body io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(body, smallAnswer))
	if err != nil {
		return nil, err
	}
	if len(b) == smallAnswer {
		leave, err := w.enter(r.Context())
		if err != nil {
			return nil, err
		}
		defer leave()
		rest, err := bounded.ReadAll(r.Context(), body, maxDocument-smallAnswer)
		if err != nil {
			return nil, err
		}
		b = append(b, rest...)
	}
	if len(bytes.TrimSpace(b)) > 0 {
		_, err = bounded.Unambiguous(b, maxDepth, maxValues)
	}
	return b, err
}

// failure reads the body of an error. Only its status matters.
func (w *wire) failure(_ *http.Request, body io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(body, maxFailure))
	if err == nil {
		_, err = bounded.Unambiguous(b, maxDepth, maxValues)
	}
	if err != nil {
		b = []byte("{}")
	}
	return b, nil
}

// nothing reads an answer that does not matter, such as the one that repeats posted events.
func (w *wire) nothing(_ *http.Request, body io.Reader) ([]byte, error) {
	_, _ = io.Copy(io.Discard, io.LimitReader(body, maxFailure)) // so that the connection can be used again
	return []byte(`{"data":[]}`), nil
}

// page reads a page of events one by one, and returns what the worker needs of it.
func (w *wire) page(r *http.Request, body io.Reader) ([]byte, error) {
	leave, err := w.enter(r.Context())
	if err != nil {
		return nil, err
	}
	defer leave()
	a := accountOf(r.Context())
	if !r.URL.Query().Has("page") {
		a.forgetPages()
	}
	b, last, err := trimPage(body, a)
	if last { // the SDK keeps only open calls
		a.forgetPages()
	}
	if err != nil && r.Context().Err() == nil {
		a.fail(fmt.Errorf("the service's events are refused: %w", err))
	}
	return b, err
}

// trimPage reads a page of events, and reports whether it is the last.
func trimPage(body io.Reader, a *account) (_ []byte, last bool, _ error) {
	part := &repack.AtMost{R: &cutter{from: &repack.AtMost{R: body, Left: maxRawPage, What: "the page"}}, Left: maxEvent, What: "an event"}
	d := json.NewDecoder(part)
	if err := next(d, '{'); err != nil {
		return nil, false, err
	}
	out, events, values := []byte(`{"data":[`), 0, 0
	var calls []string
	var cursor *string
	for keys := map[string]bool{}; d.More(); {
		t, err := d.Token()
		key, _ := t.(string)
		if err != nil {
			return nil, false, err
		}
		if keys[bounded.Fold(key)] {
			return nil, false, fmt.Errorf("the page has the key %.100q twice", key)
		}
		keys[bounded.Fold(key)] = true
		part.Left = maxEvent
		switch key {
		case "next_page":
			if err := d.Decode(&cursor); err != nil {
				return nil, false, err
			}
		case "data":
			if err := next(d, '['); err != nil {
				return nil, false, err
			}
			for d.More() {
				var raw json.RawMessage
				part.Left = maxEvent
				if err := d.Decode(&raw); err != nil {
					return nil, false, err
				}
				event, call, n, err := trim(raw)
				if err != nil {
					return nil, false, err
				}
				if events++; events > 1 {
					out = append(out, ',')
				}
				out, values, calls = append(out, event...), values+n, append(calls, call)
				if len(out) > maxPage || events > maxEvents || values > maxValues {
					return nil, false, errors.New("the page has too many events, or too large ones")
				}
			}
			if err := next(d, ']'); err != nil {
				return nil, false, err
			}
		default:
			if len(keys) > 20 {
				return nil, false, errors.New("the page has too many keys")
			}
			var skipped json.RawMessage
			if err := d.Decode(&skipped); err != nil {
				return nil, false, err
			}
		}
	}
	if err := next(d, '}'); err != nil {
		return nil, false, err
	}
	if err := a.keep(len(out), calls...); err != nil {
		return nil, false, err
	}
	b, err := json.Marshal(cursor)
	if len(b) > 4096 {
		err = errors.New("the name of the next page is too long")
	}
	return slices.Concat(out, []byte(`],"next_page":`), b, []byte("}")), cursor == nil, err
}

// next reads a delimiter.
func next(d *json.Decoder, want json.Delim) error {
	t, err := d.Token()
	if err == nil && t != want {
		err = fmt.Errorf("there is no %q where it must be", want.String())
	}
	return err
}

// needed are the fields of events that the worker needs.
var needed = []string{
	"id", "type", "name", "input", "processed_at", "session_thread_id", "evaluated_permission", "evaluation", "tool_use_id", "custom_tool_use_id",
	"result", "stop_reason",
}

// maxID limits the id of an event or a call.
const maxID = 200

// trim makes an event afresh from what the worker needs of it, and counts its values. call is the
// id of the call that the event makes or answers, or "".
func trim(raw []byte) (event []byte, call string, values int, err error) {
	refuse := func(err error) ([]byte, string, int, error) { return nil, "", 0, err }
	if values, err = bounded.Unambiguous(raw, maxDepth, maxValues); err != nil {
		return refuse(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return refuse(err)
	}
	for _, key := range []string{"id", "type", "tool_use_id", "custom_tool_use_id"} {
		if len(all[key]) > maxID {
			return refuse(fmt.Errorf("the %s of an event has %d bytes", key, len(all[key])))
		}
	}
	isCall := slices.Contains([]string{`"agent.tool_use"`, `"agent.custom_tool_use"`}, string(all["type"]))
	if isCall && bytes.Contains(raw, cutHere) {
		return refuse(fmt.Errorf("a call has a text of more than %d bytes", maxText))
	}
	maps.DeleteFunc(all, func(key string, _ json.RawMessage) bool {
		return !slices.Contains(needed, key) || !isCall && (key == "input" || key == "name")
	})
	call = string(all["tool_use_id"]) + string(all["custom_tool_use_id"])
	if isCall {
		call = string(all["id"])
	}
	event, err = json.Marshal(all)
	return event, call, values, err
}

// cutHere marks a text that is cut. No service knows it.
var cutHere = []byte("<cut-" + random.Hex(12) + ">")

// A cutter reads JSON, and cuts texts that are longer than maxText, without keeping them in memory.
type cutter struct {
	from    io.Reader
	buf     []byte // what is left of the input
	out     []byte
	err     error
	inside  bool // a text
	escaped bool // by a backslash
	digits  int  // that still belong to an escaped character
	cut     bool
	length  int
}

// Read implements io.Reader.
func (c *cutter) Read(p []byte) (int, error) {
	for len(c.out) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		if c.buf == nil {
			c.buf = make([]byte, 16<<10)
		}
		var n int
		n, c.err = c.from.Read(c.buf)
		c.pass(c.buf[:n])
	}
	n := copy(p, c.out)
	c.out = c.out[n:]
	return n, nil
}

func (c *cutter) pass(in []byte) {
	c.out = c.out[:0]
	for _, b := range in {
		between := !c.escaped && c.digits == 0 && b&0xc0 != 0x80 // two characters
		if c.inside && c.length > maxText && !c.cut && between && b != '"' {
			c.cut = true
			c.out = append(c.out, cutHere...)
		}
		switch {
		case b == '\n': // never in a text, but between events of a stream
			c.inside, c.escaped, c.digits, c.cut, c.length = false, false, 0, false, 0
		case c.escaped:
			c.escaped = false
			if b == 'u' {
				c.digits = 4
			}
		case c.digits > 0:
			c.digits--
		case b == '"':
			c.inside, c.cut, c.length = !c.inside, false, 0
		case c.inside && b == '\\':
			c.escaped = true
		}
		if c.length++; c.length > maxWholeText && c.inside {
			c.err = errors.New("a text is too large")
			return
		}
		if !c.cut {
			c.out = append(c.out, b)
		}
	}
}

// A stream passes on the events of a stream of server-sent events, one by one.
type stream struct {
	io.Closer
	from    *bufio.Reader
	account *account
	out     []byte
	err     error
}

// Read implements io.Reader.
func (s *stream) Read(p []byte) (int, error) {
	for len(s.out) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		if s.out, s.err = s.event(); errors.Is(s.err, errRefusedEvent) {
			s.account.fail(s.err)
		}
	}
	n := copy(p, s.out)
	s.out = s.out[n:]
	return n, nil
}

var errRefusedEvent = errors.New("an event of the service is refused")

// event reads one event, and returns what is passed on of it.
func (s *stream) event() ([]byte, error) {
	name, data, left := "", []byte(nil), maxEvent
	for {
		line, err := s.line(left)
		if err != nil {
			return nil, err
		}
		left -= len(line) + 1
		if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
			break
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value[:min(len(value), maxID)])
		case "data":
			data = append(append(data, value...), '\n')
		}
	}
	if name == "" || name == "ping" || len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	if name == "error" {
		b, _ := (&wire{}).failure(nil, bytes.NewReader(data))
		return fmt.Appendf(nil, "event: error\ndata: %s\n\n", bytes.ReplaceAll(bytes.TrimSpace(b), []byte("\n"), []byte(" "))), nil
	}
	b, call, _, err := trim(data)
	if err == nil {
		err = s.account.keep(0, call)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRefusedEvent, err)
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, b), nil
}

// line reads a line of at most limit bytes, without its end.
func (s *stream) line(limit int) ([]byte, error) {
	var line []byte
	for {
		piece, err := s.from.ReadSlice('\n')
		if len(line)+len(piece) > limit {
			return nil, fmt.Errorf("%w: it has more than %d bytes", errRefusedEvent, maxEvent)
		}
		line = append(line, piece...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// usage is what all work uses of the server's memory, by project.
type usage struct {
	mu    sync.Mutex
	large map[string]chan struct{}
	held  map[string]int64 // what is kept of events
	total int64
}

func newUsage() *usage {
	return &usage{large: map[string]chan struct{}{}, held: map[string]int64{}}
}

// largeOf are the places for large answers of a project.
func (u *usage) largeOf(project string) chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.large[project] == nil {
		u.large[project] = make(chan struct{}, largeAnswers)
	}
	return u.large[project]
}

// An account is what a piece of work keeps.
type account struct {
	use     *usage
	project string
	// fail ends the work.
	fail func(error)

	calls map[string]bool // guarded, like what follows, by use.mu
	ids   int64
	pages int64
}

type accountKey struct{}

// accountOf is the account of a request, or one of its own.
func accountOf(ctx context.Context) *account {
	if a, ok := ctx.Value(accountKey{}).(*account); ok {
		return a
	}
	return &account{use: newUsage(), fail: func(error) {}}
}

// keep notes that bytes of a page are kept until its listing ends, and calls until the work ends.
func (a *account) keep(bytes int, calls ...string) error {
	a.use.mu.Lock()
	defer a.use.mu.Unlock()
	if a.calls == nil {
		a.calls = map[string]bool{}
	}
	for _, call := range calls {
		if call == "" || a.calls[call] {
			continue
		}
		if err := a.add(idMemory, 0); err != nil {
			return err
		}
		a.calls[call] = true
	}
	return a.add(0, int64(bytes))
}

// add is called with the lock.
func (a *account) add(ids, pages int64) error {
	u, n := a.use, ids+pages
	if n > 0 && (a.ids+a.pages+n > pieceMemory || u.held[a.project]+n > projectMemory || u.total+n > allMemory) {
		return errors.New("the sessions worked for have too many events to keep them in memory")
	}
	a.ids, a.pages, u.total = a.ids+ids, a.pages+pages, u.total+n
	if u.held[a.project] += n; u.held[a.project] == 0 {
		delete(u.held, a.project)
	}
	return nil
}

// forgetPages notes that the SDK no longer has the pages.
func (a *account) forgetPages() {
	a.use.mu.Lock()
	defer a.use.mu.Unlock()
	_ = a.add(0, -a.pages)
}

// close returns everything.
func (a *account) close() {
	a.use.mu.Lock()
	defer a.use.mu.Unlock()
	_ = a.add(-a.ids, -a.pages)
}
