package gateway

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// credentialHeaders are the headers into which a secret without a header of its own is inserted.
// Hosts are more likely to send other headers back: Origin, Idempotency-Key, X-Request-Id.
var credentialHeaders = []string{
	"Authorization", "X-Api-Key", "Api-Key", "X-Goog-Api-Key", "X-Auth-Token", "X-Access-Token", "Private-Token",
}

// placement records what was done to one request.
type placement struct {
	// put names the secrets whose values are in the request.
	put []string
	// left reports placeholders that were found in places where none are replaced.
	left []leftover
	// forms are the values for the request's host, in the forms in which they could come back.
	forms []replacement
}

// leftover is a placeholder that is left, and where.
type leftover struct{ secret, where string }

// headers returns the headers into which the secret may be inserted.
func (c *secret) headers() []string {
	if c.header != "" {
		return []string{c.header}
	}
	return credentialHeaders
}

// putInPlace inserts the secrets for name into the headers of a request.
func (s *secrets) putInPlace(name string, r *http.Request) *placement {
	p := &placement{}
	for _, c := range s.list {
		if _, ok := c.hosts.match(name); !ok {
			continue
		}
		p.forms = append(p.forms, c.forms...)
		if c.putInPlace(r.Header, p) {
			p.put = append(p.put, c.name)
		}
		if where := c.elsewhere(r); where != "" {
			p.left = append(p.left, leftover{c.name, where})
		}
	}
	return p
}

func (c *secret) putInPlace(h http.Header, p *placement) bool {
	if c.override {
		h.Set(c.header, c.value)
		return true
	}
	found := false
	for _, key := range c.headers() {
		for i, v := range h[key] {
			if w := c.replaceIn(v, p); w != v {
				h[key][i] = w
				found = true
			}
		}
	}
	if c.header != "" && !found {
		h.Set(c.header, c.value)
		found = true
	}
	return found
}

// replaceIn returns a header value with the placeholder replaced. It also looks inside basic
// authentication, where clients encode it.
func (c *secret) replaceIn(v string, p *placement) string {
	scheme, wrapped, _ := strings.Cut(v, " ")
	if strings.EqualFold(scheme, "Basic") {
		wrapped = strings.TrimSpace(wrapped)
		plain, err := base64.StdEncoding.DecodeString(wrapped)
		if err == nil && strings.Contains(string(plain), c.placeholder) {
			plain = []byte(strings.ReplaceAll(string(plain), c.placeholder, c.value))
			sent := base64.StdEncoding.EncodeToString(plain)
			p.forms = append(p.forms, replacement{sent, wrapped})
			return scheme + " " + sent
		}
	}
	return strings.ReplaceAll(v, c.placeholder, c.value)
}

// elsewhere returns where in the request the placeholder remains, or "".
func (c *secret) elsewhere(r *http.Request) string {
	if strings.Contains(r.URL.RawQuery, c.placeholder) || strings.Contains(r.URL.Path, c.placeholder) {
		return "the URL"
	}
	for key, values := range r.Header {
		if slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, c.placeholder) }) {
			return "the header " + clip(key)
		}
	}
	return ""
}

// note is a log line about a secret: that it was inserted, or why not.
type note struct{ secret, left string }

func (p *placement) decisions() (notes []note) {
	for _, name := range p.put {
		notes = append(notes, note{secret: name})
	}
	for _, l := range p.left {
		notes = append(notes, note{l.secret, fmt.Sprintf("the placeholder in %s was left as it is: it is replaced in the secret's header only", l.where)})
	}
	return notes
}

type placementKey struct{}

// readable changes the request so that its answer can be searched for values: complete, and in
// an encoding that can be undone.
func (p *placement) readable(r *http.Request) *http.Request {
	h := r.Header
	ranged := h.Get("Range") != ""
	if ranged && len(p.put) > 0 && (r.Method != http.MethodGet || r.Body != nil) {
		// An answer in parts could reveal a value in parts. Only a plain GET can be repeated,
		// see wholeAnswers.
		h.Del("Range")
		h.Del("If-Range")
		ranged = false
	}
	if accepted := strings.Join(h.Values("Accept-Encoding"), ","); accepted != "" {
		if h.Set("Accept-Encoding", "identity"); !ranged && acceptsGzip(accepted) {
			h.Set("Accept-Encoding", "gzip")
		}
	}
	h.Del("Sec-Websocket-Extensions")
	return r.WithContext(context.WithValue(r.Context(), placementKey{}, p))
}

// acceptsGzip reports whether a list of encodings accepts gzip.
func acceptsGzip(list string) bool {
	for one := range strings.SplitSeq(list, ",") {
		coding, weight, _ := strings.Cut(one, ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			q, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(weight), "q="), 64)
			return err != nil || q > 0
		}
	}
	return false
}

// placementOf returns the placement of an outgoing request.
func placementOf(r *http.Request) *placement {
	if r != nil {
		if p, ok := r.Context().Value(placementKey{}).(*placement); ok {
			return p
		}
	}
	return &placement{}
}
