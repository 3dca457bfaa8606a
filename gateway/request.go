package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

const (
	// maxHead limits the head of an HTTP request, and what is kept of it.
	maxHead = 64 << 10
	// maxLine bounds a line in its body.
	maxLine = 8 << 10
)

// bodyKind says how the end of a request's body is found.
type bodyKind int

const (
	bodyLength bodyKind = iota
	bodyChunked
)

// request is the head of one HTTP/1 request, as far as the gateway has to understand it: which
// host it is for, and where it ends. A head that two parsers could understand differently is
// refused.
type request struct {
	// host is the canonical name that the request is for.
	host string
	// head is what is forwarded, ending in an empty line.
	head   []byte
	body   bodyKind
	length int64
	// webSocket is set if the client wants to switch to WebSocket.
	webSocket bool
}

// methods distinguish HTTP from other protocols.
var methods = []string{
	"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "PRI",
	"PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH",
}

// looksHTTP reports whether b begins with an HTTP method, and, if b is too short to tell, that
// more is needed.
func looksHTTP(b []byte) (yes, more bool) {
	for _, m := range methods {
		m += " "
		if n := min(len(b), len(m)); string(b[:n]) == m[:n] {
			if n == len(m) {
				return true, false
			}
			more = true
		}
	}
	return false, more
}

// headEnd returns the length of the head at the beginning of b, or 0 if it is not complete.
func headEnd(b []byte) int {
	if i := bytes.Index(b, []byte("\r\n\r\n")); i >= 0 {
		return i + 4
	}
	return 0
}

// parseRequest parses a complete head.
func parseRequest(head []byte) (*request, error) {
	lines := strings.Split(string(head[:len(head)-4]), "\r\n")
	for _, line := range lines {
		if strings.ContainsAny(line, "\r\n\x00") {
			return nil, errors.New("the HTTP request has stray control characters")
		}
	}
	method, rest, _ := strings.Cut(lines[0], " ")
	target, version, ok := strings.Cut(rest, " ")
	if !ok || !isToken(method) || target == "" || strings.ContainsAny(target, " \t") {
		return nil, errors.New("the HTTP request line is malformed")
	}
	if version != "HTTP/1.1" && version != "HTTP/1.0" {
		return nil, fmt.Errorf("only HTTP/1 can be checked without TLS, not %q", clip(version))
	}
	if method == "CONNECT" {
		return nil, errors.New("CONNECT asks for a tunnel")
	}
	fields, err := parseFields(lines[1:])
	if err != nil {
		return nil, err
	}
	r := &request{}
	if r.host, err = fields.host(target); err != nil {
		return nil, err
	}
	if err := fields.framing(r, version); err != nil {
		return nil, err
	}
	r.webSocket = version == "HTTP/1.1" && r.body == bodyLength && r.length == 0 && fields.asksWebSocket()
	r.head = fields.write(lines[0], r.webSocket)
	return r, nil
}

// field is one header line. raw is the line as received.
type field struct{ name, value, raw string }

type fields []field

func parseFields(lines []string) (fields, error) {
	var fs fields
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) {
			return nil, errors.New("an HTTP header line is malformed")
		}
		fs = append(fs, field{strings.ToLower(name), strings.Trim(value, " \t"), line})
	}
	return fs, nil
}

func (fs fields) all(name string) []string {
	var values []string
	for _, f := range fs {
		if f.name == name {
			values = append(values, f.value)
		}
	}
	return values
}

// host returns the one host that the request is for.
func (fs fields) host(target string) (string, error) {
	values := fs.all("host")
	if len(values) != 1 {
		return "", fmt.Errorf("the HTTP request has %d Host headers, not one", len(values))
	}
	host, ok := hostOf(values[0])
	if !ok {
		return "", fmt.Errorf("the Host header %q is not a host name", clip(values[0]))
	}
	if target[0] == '/' || target == "*" {
		return host, nil
	}
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" || u.User != nil {
		return "", errors.New("the HTTP request target is malformed")
	}
	if other, ok := hostOf(u.Host); !ok || other != host {
		return "", fmt.Errorf("the HTTP request is for %q and its Host header says %s", clip(u.Host), host)
	}
	return host, nil
}

// hostOf returns the canonical name in "name" or "name:port".
func hostOf(s string) (string, bool) {
	name, port, found := strings.Cut(s, ":")
	if found {
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return "", false
		}
	}
	if !isASCII(name) {
		return "", false
	}
	return canonicalName(name)
}

// framing determines where the body ends, and accepts only unambiguous
// requests.
func (fs fields) framing(r *request, version string) error {
	lengths, codings := fs.all("content-length"), fs.all("transfer-encoding")
	switch {
	case len(codings) == 0 && len(lengths) == 0:
		return nil
	case len(codings) == 0 && len(lengths) == 1:
		n, err := strconv.ParseUint(lengths[0], 10, 63)
		if err != nil || lengths[0][0] == '+' {
			return errors.New("the Content-Length is not a number")
		}
		r.length = int64(n)
		return nil
	case len(codings) == 1 && len(lengths) == 0 && version == "HTTP/1.1" && strings.EqualFold(codings[0], "chunked"):
		r.body = bodyChunked
		return nil
	}
	return errors.New("the length of the HTTP request's body is ambiguous")
}

func (fs fields) asksWebSocket() bool {
	u := fs.all("upgrade")
	return len(u) == 1 && strings.EqualFold(u[0], "websocket")
}

// write returns the head to forward. It omits an upgrade to anything but WebSocket, which a
// server may ignore anyway: a client that offers HTTP/2 stays with HTTP/1, which can be checked.
func (fs fields) write(first string, upgrade bool) []byte {
	var b bytes.Buffer
	b.WriteString(first + "\r\n")
	for _, f := range fs {
		if !upgrade && (f.name == "upgrade" || f.name == "http2-settings") {
			continue
		}
		if !upgrade && f.name == "connection" {
			f.raw = "Connection: " + withoutUpgrade(f.value)
		}
		b.WriteString(f.raw + "\r\n")
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

func withoutUpgrade(options string) string {
	var kept []string
	for _, o := range strings.Split(options, ",") {
		o = strings.TrimSpace(o)
		if !strings.EqualFold(o, "upgrade") && !strings.EqualFold(o, "http2-settings") {
			kept = append(kept, o)
		}
	}
	return strings.Join(kept, ", ")
}

func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}

// parseChunkSize parses the line before a chunk, without its line end. What follows a semicolon
// is meaningless and dropped.
func parseChunkSize(line string) (int64, error) {
	size, _, _ := strings.Cut(line, ";")
	size = strings.TrimRight(size, " \t")
	n, err := strconv.ParseUint(size, 16, 62)
	if err != nil || size[0] == '+' || strings.Contains(size, "_") {
		return 0, errors.New("a chunk of the HTTP request's body is malformed")
	}
	return int64(n), nil
}
