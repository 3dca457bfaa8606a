package client

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

const eventsType = "text/event-stream"

// conn sends requests.
type conn struct {
	base  string
	key   string
	agent string
	http  *http.Client
}

func (c *conn) request(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Request, error) {
	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil || r.URL.Host == "" {
		return nil, bothy.Errorf(bothy.CodeInvalid, "the server's URL %q is not valid", c.base).
			WithHint("Set BOTHY_URL to something like http://127.0.0.1:7700.").Because(err)
	}
	r.Header = c.header(ctx)
	return r, nil
}

func (c *conn) header(ctx context.Context) http.Header {
	h := http.Header{"User-Agent": {c.agent}, "Accept": {"application/json"}}
	if c.key != "" {
		h.Set("Authorization", "Bearer "+c.key)
	}
	if key, ok := ctx.Value(idempotencyKey{}).(string); ok && key != "" {
		h.Set("Idempotency-Key", key)
	}
	return h
}

// send returns an answer that reports success. The caller closes its body. It retries requests
// that the server was too busy to start, and those that lost their connection to another request.
func (c *conn) send(r *http.Request) (*http.Response, error) {
	for try := 0; ; try++ {
		res, err := c.http.Do(r)
		if err != nil && try < maxRetries && taken(r, err) && rewind(r) {
			continue
		}
		if err != nil {
			return nil, c.unreachable(r.Context(), err)
		}
		if res.StatusCode < 300 {
			return res, nil
		}
		refused := failure(res)
		_ = res.Body.Close()
		if try == maxRetries || !again(r, refused) {
			return nil, refused
		}
	}
}

// call sends JSON and reads JSON. in, out and query may be nil.
func (c *conn) call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	r, err := c.jsonRequest(ctx, method, path, query, in)
	if err != nil {
		return err
	}
	res, err := c.send(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return c.brokenOff(ctx, err)
	}
	if out == nil || len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return bothy.Errorf(bothy.CodeInternal, "the answer of %s cannot be read", c.base).
			WithHint("Check that BOTHY_URL leads to a Bothy server of about this version.").Because(err)
	}
	return nil
}

func (c *conn) jsonRequest(ctx context.Context, method, path string, query url.Values, in any) (*http.Request, error) {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, bothy.Errorf(bothy.CodeInvalid, "the request cannot be written as JSON").WithHint("Check its values.").Because(err)
		}
		body = bytes.NewReader(text)
	}
	r, err := c.request(ctx, method, path, query, body)
	if err == nil && in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r, err
}

// get reads JSON into a new T.
func get[T any](ctx context.Context, c *conn, method, path string, query url.Values, in any) (*T, error) {
	out := new(T)
	if err := c.call(ctx, method, path, query, in, out); err != nil {
		return nil, err
	}
	return out, nil
}

// items reads a list.
func items[T any](ctx context.Context, c *conn, method, path string, query url.Values, in any) ([]T, error) {
	var out struct{ Items []T }
	err := c.call(ctx, method, path, query, in, &out)
	return out.Items, err
}

// events calls fn with the data of each event.
func (c *conn) events(ctx context.Context, method, path string, query url.Values, in any, fn func(json.RawMessage) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // if fn stops early, the server must notice
	r, err := c.jsonRequest(ctx, method, path, query, in)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", eventsType)
	res, err := c.send(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if !strings.HasPrefix(res.Header.Get("Content-Type"), eventsType) {
		return bothy.Errorf(bothy.CodeUnsupported, "%s %s does not answer with events", method, path).WithHint("Ask for JSON.")
	}
	return c.readEvents(ctx, bufio.NewReaderSize(res.Body, 64<<10), fn)
}

func (c *conn) readEvents(ctx context.Context, r *bufio.Reader, fn func(json.RawMessage) error) error {
	var name string
	var data []byte
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return c.brokenOff(ctx, err)
		}
		line = bytes.TrimRight(line, "\r\n")
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			if data != nil {
				data = append(data, '\n')
			}
			data = append(data, value...)
		case "":
			if len(line) > 0 || data == nil { // a comment, or an empty event
				continue
			}
			if name == "error" {
				return problem(data)
			}
			if err := fn(data); err != nil {
				return err
			}
			name, data = "", nil
		}
	}
}

// stream reads events into values.
func stream[T any](ctx context.Context, c *conn, method, path string, query url.Values, in any, fn func(T) error) error {
	return c.events(ctx, method, path, query, in, func(raw json.RawMessage) error {
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return c.unreadable(err)
		}
		return fn(v)
	})
}

func (c *conn) unreadable(err error) error {
	return bothy.Errorf(bothy.CodeInternal, "an event of %s cannot be read", c.base).
		WithHint("Use a client of about the server's version.").Because(err)
}

// follow is stream for streams that do not end by themselves: the end is an error.
func follow[T any](ctx context.Context, c *conn, path string, query url.Values, fn func(T) error) error {
	if err := stream(ctx, c, http.MethodGet, path, query, nil, fn); err != nil {
		return err
	}
	return c.brokenOff(ctx, io.EOF)
}

// failure reads why the server refused.
func failure(res *http.Response) *bothy.Error {
	text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	err := problem(text)
	if s, convErr := strconv.Atoi(res.Header.Get("Retry-After")); convErr == nil {
		err.RetryAfter = time.Duration(s) * time.Second
	}
	if err.Code == "" {
		err.Code = bothy.CodeInternal
		err.Detail = fmt.Sprintf("the server answered %s and did not say why", res.Status)
		err.Hint = "Check that BOTHY_URL leads to a Bothy server, and what stands between."
	}
	err.Op = res.Request.Method + " " + res.Request.URL.Path
	return err
}

func problem(text []byte) *bothy.Error {
	var p struct {
		Code         bothy.Code
		Detail, Hint string
	}
	_ = json.Unmarshal(text, &p) // an answer that is not a problem has no code
	return &bothy.Error{Code: p.Code, Detail: p.Detail, Hint: p.Hint}
}

func (c *conn) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var ours *bothy.Error
	if errors.As(err, &ours) {
		return ours
	}
	var distrust *tls.CertificateVerificationError
	if errors.As(err, &distrust) {
		return bothy.Errorf(CodeUnreachable, "the certificate of %s cannot be trusted: %v", c.base, distrust.Err).
			WithHint("Call the server by the name in its certificate; if that is of an authority of your own, name its file in %s.", CAFileEnv).Because(err)
	}
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		return c.brokenOff(ctx, err)
	}
	return bothy.Errorf(CodeUnreachable, "no server answers at %s", c.base).
		WithHint("Start one with `bothy up`, or set BOTHY_URL to where it is.").Because(err)
}

func (c *conn) brokenOff(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return bothy.Errorf(CodeUnreachable, "the connection to %s broke off", c.base).
		WithHint("Check that the server still runs, with `bothy doctor`, and try again.").Because(err)
}
