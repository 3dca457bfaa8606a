package ports

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
)

const (
	// LinkQuery carries a browser's link when it is opened. linkCookie keeps it for the requests
	// that a page makes afterwards; over TLS it has a name for which no other host can set a
	// cookie.
	LinkQuery      = "bothy_link"
	LinkCookie     = "bothy_link"
	linkHostCookie = "__Host-bothy_link"
	// LinkPath and linkHeader carry a webhook's link.
	LinkPath   = "/_bothy/"
	LinkHeader = "X-Bothy-Link"
	// linkIDPrefix begins a link's text when it is sent as a bearer token.
	linkIDPrefix = "lnk_"
)

// TakeLink removes the link from a request's path, before the path is logged, and from its
// headers, so that it is not passed on.
func TakeLink(r *http.Request) (token string) {
	h := r.Header
	token = h.Get(LinkHeader)
	h.Del(LinkHeader)
	if bearer, ok := strings.CutPrefix(h.Get("Authorization"), "Bearer "); ok && strings.HasPrefix(bearer, linkIDPrefix) {
		token = bearer
		h.Del("Authorization")
	}
	if strings.Contains(h.Get("Referer"), LinkPath) {
		h.Del("Referer")
	}
	if !strings.HasPrefix(r.URL.Path, LinkPath) {
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

// ServeLink serves a port under its own host name to anyone with a link or a key.
func (s *Ports) ServeLink(w http.ResponseWriter, r *http.Request, t Target, webhook string) {
	middleware.RequestFrom(r.Context()).Operation = &ProxyOperation
	if t.Port == 0 {
		s.Fail(w, r, bothy.Errorf(bothy.CodeNotFound, "no port has the name %s", r.Host).
			WithHint("The name of a port is PORT-SANDBOX.%s, without zeros before it or a dot after it.", s.linkDomain()))
		return
	}
	if token := r.URL.Query().Get(LinkQuery); token != "" && webhook == "" {
		s.enterByLink(w, r, t, token)
		return
	}
	r, err := s.admitToPort(r, t, webhook)
	if err == nil && s.Recorder != nil {
		err = s.Recorder.Admit()
	}
	if err != nil {
		s.Fail(w, r, err)
		return
	}
	if link := linkOf(r); link != nil {
		t.Linked, t.KeepHost = true, link.KeepHost
	}
	s.ShowPort(w, r, t)
}

// admitToPort finds the credential with which a request may reach a port: a webhook's link, a
// browser's link in a cookie, or a key.
func (s *Ports) admitToPort(r *http.Request, t Target, webhook string) (*http.Request, error) {
	if webhook != "" {
		if r.Header.Get("Sec-Fetch-Mode") == "navigate" { // otherwise the page would know the link
			return r, bothy.Errorf(bothy.CodeUnauthenticated, "this link is for programs and cannot be opened in a browser").
				WithHint("Make one of the kind browser.")
		}
		return s.openLink(r, t, bothy.LinkWebhook, webhook)
	}
	for _, c := range r.CookiesNamed(cookieName(r)) { // a sibling may have set another one
		if linked, err := s.openLink(r, t, bothy.LinkBrowser, c.Value); err == nil {
			return linked, s.fromOwnPage(linked, t)
		}
	}
	r, err := s.Authenticate(r)
	if err != nil {
		err = bothy.Errorf(bothy.CodeUnauthenticated, "this page needs a valid link or an API key").
			WithHint("Make a link: POST /v1/sandboxes/%s/links.", t.Sandbox).Because(err)
	}
	return r, err
}

// enterByLink moves the link from the URL into a cookie, to keep it out of logs and referrers.
func (s *Ports) enterByLink(w http.ResponseWriter, r *http.Request, t Target, token string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		s.Fail(w, r, bothy.Errorf(bothy.CodeMethodNotAllowed, "%s is not possible with a browser's link", r.Method).
			WithHint("Open it with GET. For programs make one of the kind webhook."))
		return
	}
	r, err := s.openLink(r, t, bothy.LinkBrowser, token)
	if err != nil {
		s.Fail(w, r, err)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(r), Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode, Secure: middleware.SchemeOf(r) == "https",
	})
	q := r.URL.Query()
	q.Del(LinkQuery)
	u := url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: q.Encode()}
	// Two slashes would lead to another host.
	w.Header().Set("Location", "/"+strings.TrimLeft(u.RequestURI(), `/\`))
	w.WriteHeader(http.StatusSeeOther)
}

func cookieName(r *http.Request) string {
	if middleware.SchemeOf(r) == "https" {
		return linkHostCookie
	}
	return LinkCookie
}

// fromOwnPage refuses requests that a page of another sandbox, or of any other site, makes a
// visitor's browser send: the browser adds the cookie no matter which page sends the request.
// Such a page may navigate here, but no more. Browsers state the origin in Sec-Fetch-Site, which
// they send to hosts with a trusted connection, and in Origin, which they send except for
// navigations and plain images or scripts. A request with neither that would change something
// did not come from a current browser.
func (s *Ports) fromOwnPage(r *http.Request, t Target) error {
	h := r.Header
	site, origin := h.Get("Sec-Fetch-Site"), h.Get("Origin")
	reads := !middleware.Changes(r)
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
	return bothy.Errorf(bothy.CodePermission, "this request does not come from a page of the sandbox %s, so a browser's link does not admit it", t.Sandbox).
		WithHint("Send it from a page under the same host name. Programs use a key, or a link of the kind webhook.")
}

// ofSandbox reports whether an origin is a port of the same sandbox, with the same scheme.
func (s *Ports) ofSandbox(origin string, r *http.Request, t Target) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != middleware.SchemeOf(r) {
		return false
	}
	from, below := s.LinkTarget(u.Host)
	return below && from.Port != 0 && from.Sandbox == t.Sandbox
}
