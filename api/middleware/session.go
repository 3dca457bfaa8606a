package middleware

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access/session"
)

const (
	// SessionCookie holds a browser's login; the second name is for TLS, where the
	// browser prevents siblings of this host from setting it.
	SessionCookie     = "bothy_session"
	SessionHostCookie = "__Host-bothy_session"
	// consoleHeader is set on every request that uses a login. No form, link or frame can send
	// it, and another site can send it only after a CORS preflight.
	consoleHeader = "X-Bothy-Console"
)

// keyHolder is a bothy.KeyHolder that finds keys by their id.
type keyHolder interface {
	HoldID(ctx context.Context, projectID, id string, end func(cause error)) (*bothy.Caller, func(), error)
}

// SessionCaller finds the caller behind a browser's login. The request then depends on the login
// and its key.
func (s *Chain) SessionCaller(r *http.Request) (*bothy.Caller, session.Session, error) {
	if err := FromOwnPage(r); err != nil {
		return nil, session.Session{}, err
	}
	info := RequestFrom(r.Context())
	var err error = bothy.Errorf(bothy.CodeUnauthenticated, "you are not logged in").WithHint("Log in at /console/.")
	for _, secret := range SessionSecrets(r) {
		x, release, holdErr := s.Sessions.Hold(r.Context(), secret, info.End)
		if holdErr != nil {
			if bothy.ErrorCode(holdErr) != bothy.CodeUnauthenticated {
				err = holdErr // the owner cannot be determined now
			}
			continue
		}
		info.OnRelease(release)
		caller, err := s.HoldKeyID(r, x)
		return caller, x, err
	}
	return nil, session.Session{}, err
}

func (s *Chain) HoldKeyID(r *http.Request, x session.Session) (*bothy.Caller, error) {
	holder, ok := s.Tokens.(keyHolder)
	if !ok {
		return nil, bothy.Errorf(bothy.CodeUnauthenticated, "this server has no logins").WithHint("Use an API key.")
	}
	info := RequestFrom(r.Context())
	caller, release, err := holder.HoldID(r.Context(), x.ProjectID, x.TokenID, info.End)
	if err == nil {
		info.OnRelease(release)
	}
	return caller, err
}

// comesWithLogin reports whether a request is authenticated by a login. Ports cannot be reached
// with one: what a sandbox serves must never be a page of this origin.
func (s *Chain) comesWithLogin(r *http.Request) bool {
	return s.Sessions != nil && r.Header.Get("Authorization") == "" &&
		!strings.Contains(r.URL.Path, "/ports/") && len(SessionSecrets(r)) > 0
}

// FromOwnPage refuses requests that another page makes the browser send. All signs must agree:
// older browsers and plain HTTP lack some of them.
func FromOwnPage(r *http.Request) error {
	socket := strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
	origin, site, dest := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Sec-Fetch-Dest")
	switch {
	case origin != "" && !sameOrigin(r, origin),
		site != "" && site != "same-origin",
		dest != "" && dest != "empty" && dest != "websocket",
		socket && origin == "",
		!socket && r.Header.Get(consoleHeader) == "":
		return bothy.Errorf(bothy.CodeForbidden, "this request does not come from the console").
			WithHint("Programs send an API key in Authorization; a login serves the pages of /console/ and /docs only.")
	}
	return nil
}

func sameOrigin(r *http.Request, origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host) && u.Scheme == SchemeOf(r)
}

func sessionName(r *http.Request) string {
	if SchemeOf(r) == "https" {
		return SessionHostCookie
	}
	return SessionCookie
}

func SessionSecrets(r *http.Request) (list []string) {
	for _, c := range r.CookiesNamed(sessionName(r)) {
		list = append(list, c.Value)
	}
	return list[:min(len(list), 4)]
}

// DropLogins ends the logins that a request contains.
func (s *Chain) DropLogins(r *http.Request) error {
	for _, secret := range SessionSecrets(r) {
		if err := s.Sessions.Delete(r.Context(), secret); err != nil {
			return err
		}
	}
	return nil
}

func SetSessionCookie(w http.ResponseWriter, r *http.Request, value string, expires time.Time) {
	http.SetCookie(w, &http.Cookie{
		Name: sessionName(r), Value: value, Path: "/", Expires: expires, HttpOnly: true,
		Secure: SchemeOf(r) == "https", SameSite: http.SameSiteStrictMode,
	})
}
