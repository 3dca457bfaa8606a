package api

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/session"
)

const (
	// sessionCookie holds a browser's login; the second name is for TLS, where the
	// browser keeps siblings of this host from setting it.
	sessionCookie     = "bothy_session"
	sessionHostCookie = "__Host-bothy_session"
	// consoleHeader comes with every request that a login pays for. No form, link or
	// frame can send it, and no other site without being asked.
	consoleHeader = "X-Bothy-Console"
)

// keyHolder is a bothy.KeyHolder that finds keys by their id.
type keyHolder interface {
	HoldID(ctx context.Context, projectID, id string, end func(cause error)) (*bothy.Caller, func(), error)
}

// sessionCaller finds the caller behind a browser's login, which the request then
// holds together with its key.
func (s *Chain) sessionCaller(r *http.Request) (*bothy.Caller, session.Session, error) {
	if err := fromOwnPage(r); err != nil {
		return nil, session.Session{}, err
	}
	info := requestFrom(r.Context())
	err := bothy.Errorf(bothy.CodeUnauthenticated, "nobody is logged in").WithHint("Log in at /console/.")
	for _, secret := range sessionSecrets(r) {
		x, release, holdErr := s.Sessions.Hold(secret, info.end)
		if holdErr != nil {
			continue
		}
		info.onRelease(release)
		caller, err := s.holdKeyID(r, x)
		return caller, x, err
	}
	return nil, session.Session{}, err
}

func (s *Chain) holdKeyID(r *http.Request, x session.Session) (*bothy.Caller, error) {
	holder, ok := s.Tokens.(keyHolder)
	if !ok {
		return nil, bothy.Errorf(bothy.CodeUnauthenticated, "this server has no logins").WithHint("Use an API key.")
	}
	info := requestFrom(r.Context())
	caller, release, err := holder.HoldID(r.Context(), x.ProjectID, x.TokenID, info.end)
	if err == nil {
		info.onRelease(release)
	}
	return caller, err
}

// comesWithLogin reports whether a request is to be judged by a login. Ports are not
// reached with one: what a sandbox serves must never be a page of this origin.
func (s *Chain) comesWithLogin(r *http.Request) bool {
	return s.Sessions != nil && r.Header.Get("Authorization") == "" &&
		!strings.Contains(r.URL.Path, "/ports/") && len(sessionSecrets(r)) > 0
}

// fromOwnPage refuses what another page has the browser send. Every sign must agree:
// older browsers and plain HTTP lack some of them.
func fromOwnPage(r *http.Request) error {
	socket := strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
	origin, site, dest := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Sec-Fetch-Dest")
	switch {
	case origin != "" && !sameOrigin(r, origin),
		site != "" && site != "same-origin",
		dest != "" && dest != "empty" && dest != "websocket",
		socket && origin == "",
		!socket && r.Header.Get(consoleHeader) == "":
		return bothy.Errorf(bothy.CodeForbidden, "this request does not come from the console").
			WithHint("Programs send an API key in Authorization; a login serves the pages below /console/ only.")
	}
	return nil
}

func sameOrigin(r *http.Request, origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host) && u.Scheme == schemeOf(r)
}

func sessionName(r *http.Request) string {
	if schemeOf(r) == "https" {
		return sessionHostCookie
	}
	return sessionCookie
}

func sessionSecrets(r *http.Request) (list []string) {
	for _, c := range r.CookiesNamed(sessionName(r)) {
		list = append(list, c.Value)
	}
	return list[:min(len(list), 4)]
}

func (s *Chain) dropLogins(r *http.Request) {
	for _, secret := range sessionSecrets(r) {
		if err := s.Sessions.Delete(secret); err != nil {
			s.Log.Error("a login that was ended may come back with the next server", "error", err)
		}
	}
}

func setSessionCookie(w http.ResponseWriter, r *http.Request, value string, expires time.Time) {
	http.SetCookie(w, &http.Cookie{
		Name: sessionName(r), Value: value, Path: "/", Expires: expires, HttpOnly: true,
		Secure: schemeOf(r) == "https", SameSite: http.SameSiteStrictMode,
	})
}
