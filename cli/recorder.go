package cli

import (
	"bytes"
	"io"
	"mime"
	"net/http"
	"sync"

	"github.com/bothy-dev/bothy/client"
)

// maxRecorded bounds the answer that is kept for --json.
const maxRecorded = 64 << 20

// recorder is an http.RoundTripper that keeps a copy of the last JSON answer,
// so that --json prints the very bytes that the API sent.
type recorder struct {
	// base sends the requests; nil means plainTransport.
	base   http.RoundTripper
	mu     sync.Mutex
	last   *bytes.Buffer
	failed bool
	held   bool
}

// hold keeps the last answer through the requests that follow.
func (r *recorder) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = true
}

// plainTransport asks for bytes as they are.
var plainTransport = sync.OnceValue(client.Transport)

// RoundTrip implements http.RoundTripper.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	base := r.base
	if base == nil {
		base = plainTransport()
	}
	resp, err := base.RoundTrip(req)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held {
		return resp, err
	}
	r.last = nil
	if err != nil || !isJSON(resp.Header.Get("Content-Type")) {
		return resp, err
	}
	r.last, r.failed = new(bytes.Buffer), resp.StatusCode >= 400
	resp.Body = &recordedBody{ReadCloser: resp.Body, to: r.last, mu: &r.mu}
	return resp, nil
}

func isJSON(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	return kind == "application/json" || kind == "application/problem+json"
}

// body returns the last answer if it was JSON and a success.
func (r *recorder) body() []byte { return r.get(false) }

// problem returns the last answer if it was JSON and a failure.
func (r *recorder) problem() []byte { return r.get(true) }

func (r *recorder) get(failed bool) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil || r.failed != failed || r.last.Len() == 0 || r.last.Len() >= maxRecorded {
		return nil
	}
	return bytes.Clone(r.last.Bytes())
}

type recordedBody struct {
	io.ReadCloser
	to *bytes.Buffer
	mu *sync.Mutex
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.to.Len() < maxRecorded {
		b.to.Write(p[:n])
	}
	return n, err
}
