package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/wire/guestpb"
)

// The bounds on how much memory a guest may make us hold.
const (
	maxMessage = 4 << 20  // one message of a stream
	maxDisplay = 32 << 20 // one with displayed results
	maxAnswer  = 1 << 20  // an answer that is no stream
	maxError   = 64 << 10
	maxHeader  = 64 << 10 // of an HTTP answer
)

// maxListing is such a bound, too: for a listing with the most entries possible.
var maxListing = 64 << 20

// call is one HTTP exchange.
type call struct {
	method, path string
	query        url.Values
	contentType  string
	user         string
	header       http.Header
	body         io.Reader
	// size is the body's length, or 0 when it is not known.
	size int64
	// retry allows a second try on a new connection if an old one turns out to be dead. Only for
	// calls that change nothing.
	retry bool
}

// send does an exchange up to the response's header. An HTTP error becomes an
// error.
func (c *Client) send(ctx context.Context, call call) (*http.Response, error) {
	u := url.URL{Scheme: "http", Host: "guest", Path: call.path, RawQuery: call.query.Encode()}
	req, err := http.NewRequestWithContext(ctx, call.method, u.String(), call.body)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the request cannot be sent to the guest").Because(err)
	}
	if call.header != nil {
		req.Header = call.header
	}
	h := req.Header
	h["X-Access-Token"] = []string{*c.key.Load()}
	h["Bothy-Workdir"] = []string{"1"}
	if call.size > 0 {
		req.ContentLength = call.size
	}
	if call.contentType != "" {
		h["Content-Type"] = []string{call.contentType}
	}
	if call.user != "" {
		req.SetBasicAuth(call.user, "")
	}
	if call.retry {
		h["X-Idempotency-Key"] = nil // for the transport; it is not sent
	}
	res, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, callError(ctx, err)
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(res.Body, maxError))
	return nil, responseError(res, b)
}

// callError explains why an exchange failed.
func callError(ctx context.Context, err error) error {
	var done *bothy.Error
	switch {
	case errors.As(err, &done):
		return err
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return bothy.Errorf(bothy.CodeTimeout, "the sandbox did not answer in time").
			WithHint("It may be busy or out of memory; try again, or look at its metrics.").Because(context.DeadlineExceeded)
	case ctx.Err() != nil:
		return bothy.Errorf(bothy.CodeTimeout, "the call was cancelled: its caller left, or the server is stopping").
			WithHint("Look what came of it before you try again; a command that was started with keep_running continues.").Because(ctx.Err())
	}
	return unreachable(err)
}

func unreachable(err error) error {
	return bothy.Errorf(bothy.CodeGuest, "the sandbox's agent cannot be reached").
		WithHint("The sandbox may have ended or be starting; get it to see its state, and try again.").Because(err)
}

// responseError reads an HTTP error in either form: Connect's, with the code as a word, or that
// of the plain calls, with the code as a number.
func responseError(res *http.Response, body []byte) error {
	var e struct {
		connectError
		Code any        `json:"code"`
		Kind bothy.Code `json:"bothy_code"`
		Hint string     `json:"hint"`
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return unreachable(fmt.Errorf("the guest answered %s", res.Status))
	}
	if e.Kind != "" {
		return guestError(e.Kind, e.Message, e.Hint)
	}
	e.connectError.Code, _ = e.Code.(string)
	return e.connectError.err()
}

// reported are the codes that a guest may answer with. With any other, a sandbox could speak for
// the server, for example about keys, quotas or failures of its own.
var reported = map[bothy.Code]bool{
	bothy.CodeInvalid: true, bothy.CodePathInvalid: true, bothy.CodeCommandInvalid: true, bothy.CodeUserNotFound: true,
	bothy.CodeIsADirectory: true, bothy.CodeNotADirectory: true, bothy.CodePermission: true, bothy.CodeFileNotFound: true,
	bothy.CodeProcessNotFound: true, bothy.CodeContextNotFound: true, bothy.CodeCommandNotFound: true, bothy.CodeNotFound: true,
	bothy.CodeFileExists: true, bothy.CodeConflict: true, bothy.CodeTooLarge: true, bothy.CodeCapacity: true,
	bothy.CodeDiskFull: true, bothy.CodeUnsupported: true, bothy.CodeTimeout: true,
}

// errKeyRefused is the cause if a guest does not accept the client's key.
var errKeyRefused = errors.New("the guest does not accept the key")

// guestError is an error that the guest reports. Its texts are truncated: they are for people.
func guestError(code bothy.Code, detail, hint string) error {
	switch {
	case code == bothy.CodeUnauthenticated:
		// The caller's own key is another matter, and fine.
		return unreachable(errKeyRefused)
	case !reported[code]:
		return &bothy.Error{
			Op: "guest", Code: bothy.CodeGuest, Detail: "the sandbox's agent failed: " + clip(detail), Hint: clip(hint),
			Err: fmt.Errorf("the guest reported %q", clip(string(code))),
		}
	}
	return &bothy.Error{Op: "guest", Code: code, Detail: clip(detail), Hint: clip(hint)}
}

func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) > 2000 {
		return s[:2000] + "…"
	}
	return s
}

// connectError is an error in Connect's JSON form.
type connectError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Details []struct {
		Type  string `json:"type"`
		Value string `json:"value"`
	} `json:"details"`
}

// fallback classifies an error that comes without our detail.
var fallback = map[string]bothy.Code{
	"unauthenticated": bothy.CodeUnauthenticated, "invalid_argument": bothy.CodeInvalid,
	"not_found": bothy.CodeNotFound, "resource_exhausted": bothy.CodeTooLarge,
	"deadline_exceeded": bothy.CodeTimeout, "canceled": bothy.CodeTimeout, "unimplemented": bothy.CodeUnsupported,
}

func (e *connectError) err() error {
	for _, d := range e.Details {
		if d.Type != "bothy.guest.v1.ErrorInfo" {
			continue
		}
		var info guestpb.ErrorInfo
		b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(d.Value, "="))
		if err == nil && proto.Unmarshal(b, &info) == nil && info.Code != "" {
			return guestError(bothy.Code(info.Code), e.Message, info.Hint)
		}
	}
	code, ok := fallback[e.Code]
	if !ok {
		code = bothy.CodeGuest
	}
	return guestError(code, e.Message, "")
}

// rpc names a Connect call.
type rpc struct {
	procedure string
	user      string
	retry     bool
	// long marks calls whose work grows with a folder.
	long bool
	// max and parts bound one message; if they are 0, maxMessage of a stream, maxAnswer of any
	// other answer, and maxParts.
	max, parts int
}

// unary does a call with one message each way.
func (c *Client) unary(ctx context.Context, r rpc, req, res proto.Message) error {
	b, err := proto.Marshal(req)
	if err != nil {
		return bothy.Errorf(bothy.CodeInvalid, "the request is not UTF-8 text").Because(err)
	}
	patience := shortCall
	if r.long {
		patience = longCall
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	http, err := c.send(ctx, call{
		method: http.MethodPost, path: r.procedure, contentType: "application/proto",
		user: r.user, body: bytes.NewReader(b), retry: r.retry,
	})
	if err != nil {
		return err
	}
	defer http.Body.Close()
	b, err = readAll(ctx, http.Body, http.ContentLength, int64(cmp.Or(r.max, maxAnswer)))
	if err == nil {
		err = takeParts(ctx, b, res, cmp.Or(r.parts, maxParts))
	}
	if bothy.ErrorCode(err) == bothy.CodeRateLimited && !r.retry {
		// The call was executed: retrying would execute it twice.
		err = errNoRoom
	}
	if err == nil {
		err = decode(b, res)
	}
	if err != nil {
		return callError(ctx, err)
	}
	return nil
}

// takeParts reserves memory for the parts of an answer, of which there may be at most most.
func takeParts(ctx context.Context, b []byte, m proto.Message, most int) error {
	parts, err := partsOf(b, m.ProtoReflect().Descriptor(), most)
	if err != nil || parts*partSize <= smallAnswer {
		return err
	}
	return bothy.TakeMemory(ctx, int64(parts)*partSize)
}

var errTooLong = errors.New("the guest's answer is too long")

// trusted is how much memory is allocated on a guest's word. More is allocated as bytes arrive.
const trusted = 1 << 20

// What a guest sends is in memory several times until it has been passed on. Every call may
// receive smallAnswer without its being counted.
const (
	answerFactor = 8
	outputFactor = 4
	smallAnswer  = 256 << 10
)

// errNoRoom refuses an answer for which the server has no memory. It must not look like an error
// of a call that was never started.
var errNoRoom = bothy.Errorf(bothy.CodeTooLarge, "the answer is larger than the memory that is left for this project's requests").
	WithHint("What was asked for has been done. Do less at once, or have less shown.")

// readAll reads a body of at most limit bytes, as far as memory is available for it.
func readAll(ctx context.Context, r io.Reader, size, limit int64) ([]byte, error) {
	if size > limit {
		return nil, errTooLong
	}
	if size > smallAnswer {
		if err := bothy.TakeMemory(ctx, size*answerFactor); err != nil {
			return nil, err
		}
	}
	if size >= 0 {
		return readSized(r, nil, size)
	}
	b, err := io.ReadAll(&counted{ctx: ctx, r: io.LimitReader(r, limit+1)})
	if err == nil && int64(len(b)) > limit {
		err = errTooLong
	}
	return b, err
}

// counted reserves memory as an answer of unknown length arrives.
type counted struct {
	ctx         context.Context
	r           io.Reader
	read, taken int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.read += int64(n); c.read > max(c.taken, smallAnswer) {
		more := max(c.read, smallAnswer)
		if err := bothy.TakeMemory(c.ctx, more*answerFactor); err != nil {
			return 0, err
		}
		c.taken += more
	}
	return n, err
}

// readSized reads size bytes, into buf if they fit there.
func readSized(r io.Reader, buf []byte, size int64) ([]byte, error) {
	if int64(cap(buf)) < size {
		if size > trusted {
			b, err := io.ReadAll(io.LimitReader(r, size))
			if err == nil && int64(len(b)) < size {
				err = io.ErrUnexpectedEOF
			}
			return b, err
		}
		buf = make([]byte, size)
	}
	buf = buf[:size]
	_, err := io.ReadFull(r, buf)
	return buf, noEOF(err)
}

// drain reads what is left of a short body, so that its connection can be used
// again.
func drain(body io.ReadCloser) error {
	defer body.Close()
	_, err := io.CopyN(io.Discard, body, maxError)
	if err == io.EOF {
		return nil
	}
	return err
}

// stream is the answer to a call with many messages.
type stream struct {
	ctx        context.Context
	body       io.ReadCloser
	max, parts int
	// room is the longest message for which there is memory, and full is set if there was none
	// for a longer one.
	room int
	full bool
	head [5]byte
	buf  []byte
}

const flagEnd = 2

// open does a call whose answer is a stream.
func (c *Client) open(ctx context.Context, r rpc, req proto.Message) (*stream, error) {
	b, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 5), req)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the request is not UTF-8 text").Because(err)
	}
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-5))
	res, err := c.send(ctx, call{
		method: http.MethodPost, path: r.procedure, contentType: "application/connect+proto",
		user: r.user, body: bytes.NewReader(b),
	})
	if err != nil {
		return nil, err
	}
	return &stream{ctx: ctx, body: res.Body, max: cmp.Or(r.max, maxMessage), parts: cmp.Or(r.parts, maxParts), room: smallAnswer}, nil
}

// next reads a message into m. It returns io.EOF after the last.
func (s *stream) next(m proto.Message) error {
	if _, err := io.ReadFull(s.body, s.head[:]); err != nil {
		return callError(s.ctx, noEOF(err))
	}
	size, most, last := int(binary.BigEndian.Uint32(s.head[1:])), s.max, s.head[0]&flagEnd != 0
	if last {
		most = maxError
	}
	if size > most {
		return callError(s.ctx, errTooLong)
	}
	if !s.fits(size) {
		return s.skip(int64(size))
	}
	b, err := readSized(s.body, s.buf, int64(size))
	if err != nil {
		return callError(s.ctx, err)
	}
	s.buf = b
	if last {
		return s.end()
	}
	parts, err := partsOf(b, m.ProtoReflect().Descriptor(), s.parts)
	if err == nil && !s.fits(size+parts*partSize/outputFactor) {
		return errNoRoom
	}
	if err == nil {
		err = decode(b, m)
	}
	if err != nil {
		return callError(s.ctx, err)
	}
	return nil
}

// fits reserves memory for a message, and reports whether there is enough.
func (s *stream) fits(size int) bool {
	if size <= s.room {
		return true
	}
	if s.full = s.full || bothy.TakeMemory(s.ctx, int64(size-s.room)*outputFactor) != nil; s.full {
		return false
	}
	s.room = size
	return true
}

// skip discards a message for which there is no memory.
func (s *stream) skip(size int64) error {
	if _, err := io.CopyN(io.Discard, s.body, size); err != nil {
		return callError(s.ctx, noEOF(err))
	}
	return errNoRoom
}

// noEOF keeps an unexpected end from being taken for the regular one.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// end reads the last message of a stream, which says how it ended.
func (s *stream) end() error {
	var end struct {
		Error *connectError `json:"error"`
	}
	if err := json.Unmarshal(s.buf, &end); err != nil {
		return callError(s.ctx, err)
	}
	if err := drain(s.body); err != nil {
		return callError(s.ctx, err)
	}
	if end.Error != nil {
		return end.Error.err()
	}
	return io.EOF
}

// close ends the stream. Unless it was read to its end, its connection is closed.
func (s *stream) close() { s.body.Close() }
