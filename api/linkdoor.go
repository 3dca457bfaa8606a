package api

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/bothy-dev/bothy"
)

const (
	// linkQuery carries a browser's link when it is opened. linkCookie keeps it for
	// the requests that a page makes afterwards; over TLS it has a name that no other
	// host can set a cookie of.
	linkQuery      = "bothy_link"
	linkCookie     = "bothy_link"
	linkHostCookie = "__Host-bothy_link"
	// linkPath and linkHeader carry a webhook's link.
	linkPath   = "/_bothy/"
	linkHeader = "X-Bothy-Link"
	// linkIDPrefix begins a link's text where it is sent as a bearer.
	linkIDPrefix = "lnk_"
)

// takeLink takes the link out of a request's path, before the path is logged, and
// out of its headers. What is passed on knows nothing of it.
func takeLink(r *http.Request) (token string) {
	h := r.Header
	token = h.Get(linkHeader)
	h.Del(linkHeader)
	if bearer, ok := strings.CutPrefix(h.Get("Authorization"), "Bearer "); ok && strings.HasPrefix(bearer, linkIDPrefix) {
		token = bearer
		h.Del("Authorization")
	}
	if strings.Contains(h.Get("Referer"), linkPath) {
		h.Del("Referer")
	}
	if !strings.HasPrefix(r.URL.Path, linkPath) {
		return token
	}
	u := *r.URL
	u.Path, u.RawPath = "/", ""
	if parts := strings.SplitN(r.URL.EscapedPath(), "/", 4); len(parts) > 2 {
		token = parts[2]
		if len(parts) == 4 {
			u.RawPath = "/" + parts[3]
			u.Path, _ = url.PathUnescape(u.RawPath)
		}
	}
	r.URL, r.RequestURI = &u, u.RequestURI()
	return token
}

// serveLink shows a port under a host name of its own, to whoever has a link or
// a key.
func (s *Ports) serveLink(w http.ResponseWriter, r *http.Request, t portTarget, webhook string) {
	requestFrom(r.Context()).call = &proxyCall
	if t.port == 0 {
		s.fail(w, r, bothy.Errorf(bothy.CodeNotFound, "no port has the name %s", r.Host).
			WithHint("The name of a port is PORT-SANDBOX.%s, without zeros before it or a dot after it.", s.linkDomain()))
		return
	}
	if token := r.URL.Query().Get(linkQuery); token != "" && webhook == "" {
		s.enterByLink(w, r, t, token)
		return
	}
	r, err := s.admitToPort(r, t, webhook)
	if err == nil && s.Recorder != nil {
		err = s.Recorder.Admit()
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	t.linked = requestFrom(r.Context()).caller.LinkID != ""
	s.showPort(w, r, t)
}

// admitToPort finds by what a request may reach a port: a webhook's link, a browser's
// in a cookie, or a key.
func (s *Ports) admitToPort(r *http.Request, t portTarget, webhook string) (*http.Request, error) {
	if webhook != "" {
		if r.Header.Get("Sec-Fetch-Mode") == "navigate" { // the page would know the link
			return r, bothy.Errorf(bothy.CodeUnauthenticated, "this link is for programs, and not to be opened in a browser").
				WithHint("Make one of the kind browser.")
		}
		return s.openLink(r, t, bothy.LinkWebhook, webhook)
	}
	for _, c := range r.CookiesNamed(cookieName(r)) { // a sibling may have set one more
		if linked, err := s.openLink(r, t, bothy.LinkBrowser, c.Value); err == nil {
			return linked, s.fromOwnPage(linked, t)
		}
	}
	r, err := s.authenticate(r)
	if err != nil {
		err = bothy.Errorf(bothy.CodeUnauthenticated, "this page needs a link that has not ended, or an API key").
			WithHint("Make a link: POST /v1/sandboxes/%s/links.", t.sandbox).Because(err)
	}
	return r, err
}

// enterByLink moves the link from the address into a cookie, so that it stays out
// of logs and of what the page links to.
func (s *Ports) enterByLink(w http.ResponseWriter, r *http.Request, t portTarget, token string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		s.fail(w, r, bothy.Errorf(bothy.CodeMethodNotAllowed, "%s is not possible with a browser's link", r.Method).
			WithHint("Open it with GET. For programs make one of the kind webhook."))
		return
	}
	r, err := s.openLink(r, t, bothy.LinkBrowser, token)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: schemeOf(r) == "https",
	})
	q := r.URL.Query()
	q.Del(linkQuery)
	u := url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: q.Encode()}
	// Two slashes would lead to another host.
	w.Header().Set("Location", "/"+strings.TrimLeft(u.RequestURI(), `/\`))
	w.WriteHeader(http.StatusSeeOther)
}

func cookieName(r *http.Request) string {
	if schemeOf(r) == "https" {
		return linkHostCookie
	}
	return linkCookie
}

// fromOwnPage refuses what a page of another sandbox, or of anyone else, has a
// visitor's browser send: the browser adds the cookie, whoever wrote the page. Such
// a page may lead the visitor here, and no more. Browsers say so in Sec-Fetch-Site,
// which they send to hosts they trust the connection to, and in Origin, which they
// send with all that is neither a navigation nor a plain picture or script. What
// has neither, and would change something, did not come from a browser of today.
func (s *Ports) fromOwnPage(r *http.Request, t portTarget) error {
	h := r.Header
	site, origin := h.Get("Sec-Fetch-Site"), h.Get("Origin")
	reads := !changes(r)
	switch {
	case site == "same-origin" || site == "none":
		return nil
	case origin != "":
		if s.ofSandbox(origin, r, t) {
			return nil
		}
	case site == "":
		if reads {
			return nil
		}
	case reads && h.Get("Sec-Fetch-Mode") == "navigate" && h.Get("Sec-Fetch-Dest") != "object" && h.Get("Sec-Fetch-Dest") != "embed":
		return nil
	}
	return bothy.Errorf(bothy.CodePermission, "this request does not come from a page of the sandbox %s, so a browser's link does not do for it", t.sandbox).
		WithHint("Send it from a page under the same host name. Programs use a key, or a link of the kind webhook.")
}

// ofSandbox reports whether an origin is a port of the same sandbox, by the same
// scheme.
func (s *Ports) ofSandbox(origin string, r *http.Request, t portTarget) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != schemeOf(r) {
		return false
	}
	from, below := s.linkTarget(u.Host)
	return below && from.port != 0 && from.sandbox == t.sandbox
}
