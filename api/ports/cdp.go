package ports

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
)

// Clients of the Chrome DevTools Protocol ask for /json/version below an address, and open the WebSocket
// that the answer names. Chromium names itself there, answers only to localhost, and refuses WebSockets
// with an Origin, so that it cannot be used through a plain proxy.

const (
	cdpPath = "/v1/sandboxes/{id}/cdp/{port}"
	// maxCDPAnswer limits an answer of the browser about itself and its pages, maxCDPTargets how
	// many pages are listed, and cdpTime how long the answer may take.
	maxCDPAnswer, maxCDPTargets = 1 << 20, 1000
	cdpTime                     = 10 * time.Second
)

// cdpOperation is the operation that reaches a browser.
var cdpOperation = middleware.Operation{
	ID: "connect-cdp", Audit: true, Method: http.MethodGet, Path: cdpPath + "/{rest...}", Scope: bothy.ScopeSandboxesWrite, Raw: true,
}

var (
	// cdpSocket is the path of a WebSocket of Chromium.
	cdpSocket = regexp.MustCompile(`^/devtools/(browser|page)/[0-9A-Za-z-]{1,64}$`)
	cdpLinked = regexp.MustCompile(`^/v1/sandboxes/([a-z0-9]+)/cdp/([1-9][0-9]{0,4})(/.*)?$`)
)

// cdpVersion is what /json/version answers.
type cdpVersion struct {
	Browser         string `json:"Browser"`
	ProtocolVersion string `json:"Protocol-Version"`
	UserAgent       string `json:"User-Agent"`
	V8Version       string `json:"V8-Version"`
	WebKitVersion   string `json:"WebKit-Version"`
	Socket          string `json:"webSocketDebuggerUrl"`
}

// cdpTarget is an element of what /json/list answers.
type cdpTarget struct {
	Description string `json:"description"`
	ID          string `json:"id"`
	ParentID    string `json:"parentId,omitempty"`
	Title       string `json:"title"`
	Type        string `json:"type"`
	URL         string `json:"url"`
	Favicon     string `json:"faviconUrl,omitempty"`
	Socket      string `json:"webSocketDebuggerUrl,omitempty"`
}

func (s *Ports) registerCDP() {
	h := func(w http.ResponseWriter, r *http.Request) {
		port, err := strconv.ParseUint(r.PathValue("port"), 10, 16)
		if err != nil || port == 0 {
			s.Fail(w, r, bothy.Errorf(bothy.CodeInvalid, "path parameter port: %q is not a port", r.PathValue("port")).
				WithHint("Give a number from 1 to 65535; the browser of the template browser has 9222."))
			return
		}
		t := Target{Sandbox: r.PathValue("id"), Port: uint16(port)}
		t.prefix = cdpPrefix(t)
		s.serveCDP(w, r, t, t.prefix)
	}
	s.registry.Mount(cdpOperation, h)
	plain := cdpOperation
	plain.Path = cdpPath // without a slash, so that WebSockets are not redirected
	s.registry.Mount(plain, h)
}

// CDPTarget returns the target of a request whose path carries a link to a browser, and whether it is one.
func (s *Ports) CDPTarget(r *http.Request) (t Target, ok bool) {
	rest, linked := strings.CutPrefix(r.URL.Path, LinkPath)
	if !linked {
		return t, false
	}
	_, rest, _ = strings.Cut(rest, "/")
	m := cdpLinked.FindStringSubmatch("/" + rest)
	if m == nil || s.proxy == nil || len(s.LinkKey) == 0 || s.Links == nil {
		return t, false
	}
	port, err := strconv.ParseUint(m[2], 10, 16)
	t = Target{Sandbox: m[1], Port: uint16(port), Linked: true}
	t.prefix = cdpPrefix(t)
	return t, err == nil
}

// cdpPrefix is the path of a browser's address for callers with a key.
func cdpPrefix(t Target) string {
	return fmt.Sprintf("/v1/sandboxes/%s/cdp/%d", url.PathEscape(t.Sandbox), t.Port)
}

// ServeCDPLink serves a browser to anyone with a link to it.
func (s *Ports) ServeCDPLink(w http.ResponseWriter, r *http.Request, t Target) {
	info := middleware.RequestFrom(r.Context())
	token := TakeLink(r)
	info.Operation, info.Use = &cdpOperation, s.UseOf(r, t)
	r, err := s.openLink(r, t, bothy.LinkCDP, token)
	if err == nil && s.Recorder != nil {
		err = s.Recorder.Admit()
	}
	if err == nil {
		r, err = s.Admit(r)
	}
	if err != nil {
		s.Fail(w, r, err)
		return
	}
	s.serveCDP(w, r, t, LinkPath+token+t.prefix)
}

// serveCDP serves what clients need of a browser: what it is, its pages, and its WebSockets. base is the
// path by which the client came.
func (s *Ports) serveCDP(w http.ResponseWriter, r *http.Request, t Target, base string) {
	path := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, t.prefix), "/")
	scheme := map[string]string{"http": "ws", "https": "wss"}[middleware.SchemeOf(r)]
	outside := func(socket string) string {
		u := url.URL{Scheme: scheme, Host: r.Host, Path: base + socket}
		return u.String()
	}
	var answer any
	var err error
	switch {
	case r.Header.Get("Upgrade") != "":
		s.openCDP(w, r, t, path)
		return
	case path == "/json/version":
		var v *cdpVersion
		if v, err = s.cdpVersion(r.Context(), t); err == nil {
			v.Socket = outside(v.Socket)
			answer = v
		}
	case path == "/json" || path == "/json/list":
		answer, err = s.cdpTargets(r.Context(), t, outside)
	default:
		err = s.nothingAt(r.Context(), t, path)
	}
	if err != nil {
		s.Fail(w, r, err)
		return
	}
	if r.Method != http.MethodGet {
		s.Fail(w, r, bothy.Errorf(bothy.CodeMethodNotAllowed, "%s is not possible on a browser's address", r.Method).WithHint("Pages are opened over the WebSocket."))
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("Cache-Control", "private, no-store")
	_ = json.NewEncoder(w).Encode(answer)
}

// openCDP opens a WebSocket of the browser; the address itself is that of the whole browser.
func (s *Ports) openCDP(w http.ResponseWriter, r *http.Request, t Target, path string) {
	if path == "" {
		v, err := s.cdpVersion(r.Context(), t)
		if err != nil {
			s.Fail(w, r, err)
			return
		}
		path = v.Socket
	}
	if !cdpSocket.MatchString(path) {
		s.Fail(w, r, s.nothingAt(r.Context(), t, path))
		return
	}
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath, r.URL.RawQuery = t.prefix+path, "", ""
	r.Header.Del("Origin")
	s.ShowPort(w, r, t)
}

// nothingAt is the error for a path that a browser's address does not have, if there is a browser at all.
func (s *Ports) nothingAt(ctx context.Context, t Target, path string) error {
	if _, err := s.cdpVersion(ctx, t); err != nil {
		return err
	}
	return bothy.Errorf(bothy.CodeNotFound, "a browser's address has /json/version, /json/list and the WebSockets named there, and not %s", cmp.Or(path, "/")).
		WithHint("Give the address itself to a client of the Chrome DevTools Protocol.")
}

// cdpVersion asks the browser what it is. Of the address of its WebSocket only the path is kept.
func (s *Ports) cdpVersion(ctx context.Context, t Target) (*cdpVersion, error) {
	v := &cdpVersion{}
	if err := s.askCDP(ctx, t, "/json/version", v); err != nil {
		return nil, err
	}
	v.Socket = socketPath(v.Socket)
	if !strings.HasPrefix(v.Socket, "/devtools/browser/") {
		return nil, noBrowser(t)
	}
	return v, nil
}

func (s *Ports) cdpTargets(ctx context.Context, t Target, outside func(socket string) string) ([]cdpTarget, error) {
	all := []cdpTarget{}
	if err := s.askCDP(ctx, t, "/json/list", &all); err != nil {
		return nil, err
	}
	all = all[:min(len(all), maxCDPTargets)]
	for i := range all {
		if socket := socketPath(all[i].Socket); socket != "" {
			all[i].Socket = outside(socket)
		} else {
			all[i].Socket = ""
		}
	}
	return all, nil
}

// socketPath returns the path of a WebSocket's address as the browser gives it, or "".
func socketPath(address string) string {
	u, err := url.Parse(address)
	if err != nil || !cdpSocket.MatchString(u.Path) {
		return ""
	}
	return u.Path
}

// askCDP asks the browser about itself.
func (s *Ports) askCDP(ctx context.Context, t Target, path string, answer any) error {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, portTargetKey{}, t), cdpTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.inside()+path, nil)
	if err != nil {
		return err
	}
	res, err := s.proxy.Transport.RoundTrip(req)
	if err != nil {
		if e := (*bothy.Error)(nil); errors.As(err, &e) && e.Code != bothy.CodeConflict {
			return err // such as a sandbox that has ended
		}
		return noBrowser(t).Because(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, maxCDPAnswer+1))
	switch {
	case err != nil || res.StatusCode != http.StatusOK:
		return noBrowser(t).Because(err)
	case len(data) > maxCDPAnswer:
		return bothy.Errorf(bothy.CodeGuest, "what port %d of %s answers to %s is larger than 1 MB", t.Port, t.Sandbox, path).
			WithHint("Close some pages.")
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return noBrowser(t).Because(err)
	}
	return nil
}

func noBrowser(t Target) *bothy.Error {
	return bothy.Errorf(bothy.CodeConflict, "no browser answers on port %d of %s", t.Port, t.Sandbox).
		WithHint("Create the sandbox from the template browser, or start Chromium with --remote-debugging-port. One that has just ended is back in a second.")
}
