package rest

import (
	"net/http"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

const sessionPath = "/console/session"

// login is what the console shows about its login.
type login struct {
	Project   string        `json:"project"`
	TokenID   string        `json:"token_id"`
	TokenName string        `json:"token_name"`
	Scopes    []bothy.Scope `json:"scopes"`
	Operator  bool          `json:"operator"`
	ExpiresAt time.Time     `json:"expires_at"`
	Version   string        `json:"version"`
}

// registerSession mounts logging in and out. Only the console uses these: programs have keys.
func (s *handlers) registerSession() {
	if s.Sessions == nil {
		return
	}
	s.registry.HandleFunc("POST "+sessionPath, s.asSessionCall("log-in", s.logIn))
	s.registry.HandleFunc("GET "+sessionPath, s.asSessionCall("", s.showLogin))
	s.registry.HandleFunc("DELETE "+sessionPath, s.asSessionCall("log-out", s.logOut))
	s.registry.HandleFunc("POST /console/link", s.asSessionCall("create-console-link", s.createConsoleLink))
}

func (s *handlers) asSessionCall(id string, h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if info := middleware.RequestFrom(r.Context()); info != nil && id != "" {
			info.Operation = &middleware.Operation{ID: id, Method: r.Method, Path: r.URL.Path}
		}
		var err error
		if id != "" && s.Recorder != nil {
			err = s.Recorder.Admit()
		}
		if err == nil {
			err = h(w, r)
		}
		if err != nil {
			s.Fail(w, r, err)
		}
	}
}

func (s *handlers) logIn(w http.ResponseWriter, r *http.Request) error {
	if err := middleware.FromOwnPage(r); err != nil {
		return err
	}
	body, err := middleware.ReadLogin(w, r)
	if err != nil {
		return err
	}
	var in struct{ Key, Code string }
	if err := openapi.UnmarshalUTF8(body, &in); err != nil || (in.Key == "") == (in.Code == "") {
		return bothy.Errorf(bothy.CodeInvalid, "the body is not a login").WithHint(`Send {"key":"…"} or {"code":"…"}.`)
	}
	caller, err := s.whoLogsIn(r, strings.TrimSpace(in.Key), in.Code)
	if err != nil {
		return err
	}
	middleware.WithCaller(r, caller)
	if err := s.DropLogins(r); err != nil {
		return err
	}
	secret, x, err := s.Sessions.Create(r.Context(), caller)
	if err != nil {
		return err
	}
	middleware.SetSessionCookie(w, r, secret, x.ExpiresAt)
	openapi.WriteJSON(w, http.StatusCreated, s.loginOf(caller, x.ExpiresAt))
	return nil
}

func (s *handlers) whoLogsIn(r *http.Request, key, code string) (*bothy.Caller, error) {
	if code == "" {
		return s.HoldKey(r, key)
	}
	x, err := s.Sessions.Redeem(r.Context(), code)
	if err != nil {
		return nil, err
	}
	return s.HoldKeyID(r, x)
}

// showLogin answers with nothing if no one is logged in, which is not an error.
func (s *handlers) showLogin(w http.ResponseWriter, r *http.Request) error {
	if len(middleware.SessionSecrets(r)) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	caller, x, err := s.SessionCaller(r)
	if err == nil {
		openapi.WriteJSON(w, http.StatusOK, s.loginOf(caller, x.ExpiresAt))
	}
	return err
}

func (s *handlers) logOut(w http.ResponseWriter, r *http.Request) error {
	if err := middleware.FromOwnPage(r); err != nil {
		return err
	}
	if err := s.DropLogins(r); err != nil {
		return err
	}
	middleware.SetSessionCookie(w, r, "", time.Unix(1, 0))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// createConsoleLink is for `bothy console`: the code is in the fragment, which browsers do not
// send.
func (s *handlers) createConsoleLink(w http.ResponseWriter, r *http.Request) error {
	if r.Header.Get("Authorization") == "" {
		return bothy.Errorf(bothy.CodeUnauthenticated, "a link to the console is made with an API key").WithHint("Run `bothy console`.")
	}
	r, err := s.Authenticate(r)
	if err != nil {
		return err
	}
	code, expires, err := s.Sessions.NewCode(r.Context(), middleware.RequestFrom(r.Context()).Caller)
	if err != nil {
		return err
	}
	openapi.WriteJSON(w, http.StatusCreated, map[string]any{"path": "/console/#code=" + code, "expires_at": expires})
	return nil
}

func (s *handlers) loginOf(c *bothy.Caller, expires time.Time) login {
	return login{
		Project: c.ProjectID, TokenID: c.TokenID, TokenName: c.TokenName, Scopes: c.Scopes, Operator: c.IsOperator(),
		ExpiresAt: expires, Version: s.version,
	}
}
