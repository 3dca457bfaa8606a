package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// linkQuery carries the signature of a link, and linkCookie keeps it for
	// the requests that a page makes afterwards.
	linkQuery  = "bothy_link"
	linkCookie = "bothy_link"
)

var linkLabel = regexp.MustCompile(`^([0-9]{1,5})-([a-z0-9]+)$`)

// linkTarget reads a host name of the form PORT-ID.DOMAIN.
func (s *Server) linkTarget(hostport string) (portTarget, bool) {
	if s.proxy == nil || len(s.config.LinkKey) == 0 {
		return portTarget{}, false
	}
	host := strings.ToLower(hostport)
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	label, domain, _ := strings.Cut(strings.TrimSuffix(host, "."), ".")
	if domain != s.linkDomain() {
		return portTarget{}, false
	}
	m := linkLabel.FindStringSubmatch(label)
	if m == nil {
		return portTarget{}, false
	}
	port, err := strconv.ParseUint(m[1], 10, 16)
	return portTarget{sandbox: m[2], port: uint16(port)}, err == nil && port > 0
}

func (s *Server) linkDomain() string {
	if s.config.LinkDomain == "" {
		return "localhost"
	}
	return strings.ToLower(s.config.LinkDomain)
}

func (s *Server) linkHost(t portTarget) string {
	host := fmt.Sprintf("%d-%s.%s", t.port, t.sandbox, s.linkDomain())
	// Under another domain without TLS of its own it is a proxy that is called.
	tcp, ok := s.Addr().(*net.TCPAddr)
	if ok && (s.linkDomain() == "localhost" || s.config.TLS != nil && tcp.Port != 443) {
		host = net.JoinHostPort(host, strconv.Itoa(tcp.Port))
	}
	return host
}

// signLink makes the text that proves a right: project, expiry, signature.
func (s *Server) signLink(t portTarget, project string, expires time.Time) string {
	claim := base64.RawURLEncoding.EncodeToString([]byte(project)) + "." + strconv.FormatInt(expires.Unix(), 10)
	return claim + "." + s.linkSignature(t, claim)
}

func (s *Server) linkSignature(t portTarget, claim string) string {
	mac := hmac.New(sha256.New, s.config.LinkKey)
	fmt.Fprintf(mac, "%s\x00%d\x00%s", t.sandbox, t.port, claim)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// verifyLink returns the project that a link was made in.
func (s *Server) verifyLink(t portTarget, token string) (project string, ok bool) {
	i := strings.LastIndexByte(token, '.')
	if i < 0 || !hmac.Equal([]byte(token[i+1:]), []byte(s.linkSignature(t, token[:i]))) {
		return "", false
	}
	encoded, stamp, _ := strings.Cut(token[:i], ".")
	unix, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || !time.Now().Before(time.Unix(unix, 0)) {
		return "", false
	}
	b, err := base64.RawURLEncoding.DecodeString(encoded)
	return string(b), err == nil
}

// serveLink shows a port under a host name of its own, to whoever has a link or
// a key.
func (s *Server) serveLink(w http.ResponseWriter, r *http.Request, t portTarget) {
	if token := r.URL.Query().Get(linkQuery); token != "" {
		s.enterByLink(w, r, t, token)
		return
	}
	if c, err := r.Cookie(linkCookie); err == nil {
		if project, ok := s.verifyLink(t, c.Value); ok {
			s.showPort(w, s.asLinkHolder(r, project), t)
			return
		}
	}
	r, err := s.authenticate(r)
	if err != nil {
		s.fail(w, r, bothy.Errorf(bothy.CodeUnauthenticated, "this page needs a link that has not expired, or an API key").
			WithHint("Make a link: POST /v1/sandboxes/%s/links.", t.sandbox).Because(err))
		return
	}
	s.showPort(w, r, t)
}

// enterByLink moves the signature from the address into a cookie, so that it
// stays out of logs and of what the page links to.
func (s *Server) enterByLink(w http.ResponseWriter, r *http.Request, t portTarget, token string) {
	if _, ok := s.verifyLink(t, token); !ok {
		s.fail(w, r, bothy.Errorf(bothy.CodeUnauthenticated, "this link has expired or was changed").
			WithHint("Make a new one: POST /v1/sandboxes/%s/links.", t.sandbox))
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: linkCookie, Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: r.TLS != nil,
	})
	q := r.URL.Query()
	q.Del(linkQuery)
	u := *r.URL
	u.RawQuery = q.Encode()
	http.Redirect(w, r, u.RequestURI(), http.StatusSeeOther)
}

// asLinkHolder gives a request the one right that its link stands for.
func (s *Server) asLinkHolder(r *http.Request, project string) *http.Request {
	c := &bothy.Caller{ProjectID: project, TokenID: "link", Scopes: []bothy.Scope{bothy.ScopeSandboxesWrite}}
	if info := requestFrom(r.Context()); info != nil {
		info.caller = c
	}
	return r.WithContext(bothy.WithCaller(r.Context(), c))
}

// stripLinkCookie keeps a link's signature from the server in the sandbox.
func stripLinkCookie(h http.Header) {
	lines := h.Values("Cookie")
	h.Del("Cookie")
	for _, line := range lines {
		var kept []string
		for _, part := range strings.Split(line, ";") {
			if name, _, _ := strings.Cut(strings.TrimSpace(part), "="); name != linkCookie {
				kept = append(kept, strings.TrimSpace(part))
			}
		}
		if len(kept) > 0 {
			h.Add("Cookie", strings.Join(kept, "; "))
		}
	}
}
