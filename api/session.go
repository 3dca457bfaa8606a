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
	sessionPath   = "/console/session"
)

// keyHolder is a bothy.KeyHolder that finds keys by their id.
type keyHolder interface {
	HoldID(ctx context.Context, projectID, id string, end func(cause error)) (*bothy.Caller, func(), error)
}

// login is what the console is told of itself.
type login struct {
	Project   string        `json:"project"`
	TokenID   string        `json:"token_id"`
	TokenName string        `json:"token_name"`
	Scopes    []bothy.Scope `json:"scopes"`
	Operator  bool          `json:"operator"`
	ExpiresAt time.Time     `json:"expires_at"`
	Version   string        `json:"version"`
}

// registerSession mounts logging in and out. It is the console's own: programs have
// their key.
func (s *Server) registerSession() {
	if s.services.Sessions == nil {
		return
	}
	s.mux.HandleFunc("POST "+sessionPath, s.asSessionCall("log-in", s.logIn))
	s.mux.HandleFunc("GET "+sessionPath, s.asSessionCall("", s.showLogin))
	s.mux.HandleFunc("DELETE "+sessionPath, s.asSessionCall("log-out", s.logOut))
	s.mux.HandleFunc("POST /console/link", s.asSessionCall("create-console-link", s.createConsoleLink))
}

func (s *Server) asSessionCall(id string, h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if info := requestFrom(r.Context()); info != nil && id != "" {
			info.call = &call{ID: id, Method: r.Method, Path: r.URL.Path}
		}
		var err error
		if id != "" && s.services.Recorder != nil {
			err = s.services.Recorder.Admit()
		}
		if err == nil {
			err = h(w, r)
		}
		if err != nil {
			s.fail(w, r, err)
		}
	}
}

func (s *Server) logIn(w http.ResponseWriter, r *http.Request) error {
	if err := fromOwnPage(r); err != nil {
		return err
	}
	body, err := readJSON(w, r)
	if err != nil {
		return err
	}
	var in struct{ Key, Code string }
	if err := unmarshalUTF8(body, &in); err != nil || (in.Key == "") == (in.Code == "") {
		return bothy.Errorf(bothy.CodeInvalid, "the body is not a login").WithHint(`Send {"key":"…"} or {"code":"…"}.`)
	}
	caller, err := s.whoLogsIn(r, strings.TrimSpace(in.Key), in.Code)
	if err != nil {
		return err
	}
	withCaller(r, caller)
	s.dropLogins(r)
	secret, x, err := s.services.Sessions.Create(caller)
	if err != nil {
		return err
	}
	setSessionCookie(w, r, secret, x.ExpiresAt)
	writeJSON(w, http.StatusCreated, s.loginOf(caller, x.ExpiresAt))
	return nil
}

func (s *Server) whoLogsIn(r *http.Request, key, code string) (*bothy.Caller, error) {
	if code == "" {
		return s.holdKey(r, key)
	}
	x, err := s.services.Sessions.Redeem(code)
	if err != nil {
		return nil, err
	}
	return s.holdKeyID(r, x)
}

// showLogin answers with nothing where nobody is logged in, which is no failure.
func (s *Server) showLogin(w http.ResponseWriter, r *http.Request) error {
	if len(sessionSecrets(r)) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	caller, x, err := s.sessionCaller(r)
	if err == nil {
		writeJSON(w, http.StatusOK, s.loginOf(caller, x.ExpiresAt))
	}
	return err
}

func (s *Server) logOut(w http.ResponseWriter, r *http.Request) error {
	if err := fromOwnPage(r); err != nil {
		return err
	}
	s.dropLogins(r)
	setSessionCookie(w, r, "", time.Unix(1, 0))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// createConsoleLink is for `bothy console`: the code stands in the fragment, which
// browsers send nowhere.
func (s *Server) createConsoleLink(w http.ResponseWriter, r *http.Request) error {
	if r.Header.Get("Authorization") == "" {
		return bothy.Errorf(bothy.CodeUnauthenticated, "a link to the console is made with an API key").WithHint("Run `bothy console`.")
	}
	r, err := s.authenticate(r)
	if err != nil {
		return err
	}
	code, expires := s.services.Sessions.NewCode(requestFrom(r.Context()).caller)
	writeJSON(w, http.StatusCreated, map[string]any{"path": "/console/#code=" + code, "expires_at": expires})
	return nil
}

func (s *Server) loginOf(c *bothy.Caller, expires time.Time) login {
	return login{
		Project: c.ProjectID, TokenID: c.TokenID, TokenName: c.TokenName, Scopes: c.Scopes, Operator: c.IsOperator(),
		ExpiresAt: expires, Version: s.config.Version,
	}
}

// sessionCaller finds the caller behind a browser's login, which the request then
// holds together with its key.
func (s *Server) sessionCaller(r *http.Request) (*bothy.Caller, session.Session, error) {
	if err := fromOwnPage(r); err != nil {
		return nil, session.Session{}, err
	}
	info := requestFrom(r.Context())
	err := bothy.Errorf(bothy.CodeUnauthenticated, "nobody is logged in").WithHint("Log in at /console/.")
	for _, secret := range sessionSecrets(r) {
		x, release, holdErr := s.services.Sessions.Hold(secret, info.end)
		if holdErr != nil {
			continue
		}
		info.onRelease(release)
		caller, err := s.holdKeyID(r, x)
		return caller, x, err
	}
	return nil, session.Session{}, err
}

func (s *Server) holdKeyID(r *http.Request, x session.Session) (*bothy.Caller, error) {
	holder, ok := s.services.Tokens.(keyHolder)
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
func (s *Server) comesWithLogin(r *http.Request) bool {
	return s.services.Sessions != nil && r.Header.Get("Authorization") == "" &&
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

func (s *Server) dropLogins(r *http.Request) {
	for _, secret := range sessionSecrets(r) {
		if err := s.services.Sessions.Delete(secret); err != nil {
			s.log.Error("a login that was ended may come back with the next server", "error", err)
		}
	}
}

func setSessionCookie(w http.ResponseWriter, r *http.Request, value string, expires time.Time) {
	http.SetCookie(w, &http.Cookie{
		Name: sessionName(r), Value: value, Path: "/", Expires: expires, HttpOnly: true,
		Secure: schemeOf(r) == "https", SameSite: http.SameSiteStrictMode,
	})
}
