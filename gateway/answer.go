package gateway

import (
	"bytes"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy/internal/bounded"
)

const (
	// heldAnswer is the size of the largest body that is read completely in order to correct its
	// length.
	heldAnswer = 64 << 10
	// smallDocument is the size up to which a document is not sent in ranges to a request that
	// carried a secret.
	smallDocument = 1 << 20
)

// scrubAnswer removes the values of a host's secrets from its answer. The sandbox sees their
// placeholders, or asterisks if the length must not change.
func scrubAnswer(res *http.Response) error {
	forms := placementOf(res.Request).forms
	s := newScrubber(forms, false)
	if s == nil {
		return nil
	}
	s.header(res.Header)
	if res.StatusCode == http.StatusSwitchingProtocols {
		if c, ok := res.Body.(io.ReadWriteCloser); ok {
			res.Body = &scrubbedConn{ReadWriteCloser: c, in: &scrubbedReader{src: c, scrubber: newScrubber(forms, true)}}
		}
		return nil
	}
	if res.Body == nil || res.Body == http.NoBody || res.Request.Method == http.MethodHead {
		return nil
	}
	scrubBody(res, forms)
	return nil
}

func scrubBody(res *http.Response, forms []replacement) {
	partial := res.StatusCode == http.StatusPartialContent
	src := io.Reader(res.Body)
	if strings.EqualFold(res.Header.Get("Content-Encoding"), "gzip") && !partial {
		src = bounded.Gunzip(res.Request.Context(), res.Body, math.MaxInt64) // it is passed on as it arrives
		res.Header.Del("Content-Encoding")
		setLength(res, -1)
	}
	text := isText(res.Header.Get("Content-Type")) && !partial
	held := text && res.ContentLength >= 0 && res.ContentLength <= heldAnswer
	keepLength := !held && (!text || res.ContentLength >= 0)
	r := &scrubbedReader{src: src, scrubber: newScrubber(forms, keepLength)}
	body := &scrubbedBody{Reader: r, src: res.Body, ended: func() { r.scrubber.header(res.Trailer) }}
	if held {
		b, err := bounded.ReadAll(res.Request.Context(), r, 128*heldAnswer) // a value may be shorter than its placeholder
		if err == nil {
			setLength(res, int64(len(b)))
		}
		body.Reader = io.MultiReader(bytes.NewReader(b), failing{err})
	}
	res.Body = body
}

// scrubbedBody is a body whose trailer is set when it is closed.
type scrubbedBody struct {
	io.Reader
	src   io.Closer
	ended func()
}

func (b *scrubbedBody) Close() error {
	err := b.src.Close()
	b.ended()
	return err
}

// failing is a reader that ends, with an error if there is one.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// setLength sets the length of the body; -1 if unknown.
func setLength(res *http.Response, n int64) {
	res.ContentLength = n
	if n < 0 {
		res.Header.Del("Content-Length")
		return
	}
	res.Header.Set("Content-Length", strconv.FormatInt(n, 10))
}

// isText reports whether a placeholder can replace a value in a body: whether nothing in the
// body depends on its length.
func isText(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	if strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml") {
		return true
	}
	switch kind {
	case "application/json", "application/x-ndjson", "application/xml", "application/javascript", "application/x-www-form-urlencoded":
		return true
	}
	return false
}

// scrubbedConn is a connection that no longer speaks HTTP.
type scrubbedConn struct {
	io.ReadWriteCloser
	in *scrubbedReader
}

func (c *scrubbedConn) Read(p []byte) (int, error) { return c.in.Read(p) }

// CloseWrite implements the half-close that the proxy looks for.
func (c *scrubbedConn) CloseWrite() error {
	if h, ok := c.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}

// wholeAnswers repeats a request without a range if its host answers a request that carried a
// secret with a part of something small: a value that the host sends back could not be
// recognised in parts.
type wholeAnswers struct{ next http.RoundTripper }

func (w wholeAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := w.next.RoundTrip(r)
	if err != nil || res.StatusCode != http.StatusPartialContent || len(placementOf(r).put) == 0 || !smallOrText(res) {
		return res, err
	}
	_ = res.Body.Close()
	again := r.Clone(r.Context())
	again.Header.Del("Range")
	again.Header.Del("If-Range")
	return w.next.RoundTrip(again)
}

// smallOrText reports whether a partial answer may repeat its request. Such answers are small,
// or text.
func smallOrText(res *http.Response) bool {
	_, whole, _ := strings.Cut(res.Header.Get("Content-Range"), "/")
	n, err := strconv.ParseInt(whole, 10, 64)
	return err != nil || n <= smallDocument || isText(res.Header.Get("Content-Type"))
}

// finalOnly drops informational answers, such as 103 Early Hints. The proxy copies their headers
// without a chance to check them.
type finalOnly struct{ http.ResponseWriter }

func (w finalOnly) WriteHeader(status int) {
	if status >= http.StatusOK {
		w.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap is for http.ResponseController.
func (w finalOnly) Unwrap() http.ResponseWriter { return w.ResponseWriter }
