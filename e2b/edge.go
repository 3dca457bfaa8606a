package e2b

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
)

// The ports at which E2B's clients look for the agent and the code interpreter.
const (
	agentPort       = 49983
	interpreterPort = 49999
)

// The headers that name the sandbox and the port of a request, and that authorize it.
const (
	headerSandbox = "E2b-Sandbox-Id"
	headerPort    = "E2b-Sandbox-Port"
	headerAgent   = "X-Access-Token"
	headerTraffic = "E2b-Traffic-Access-Token"
)

// target is a port of a sandbox. The sandbox is nil if there is none with this id.
type target struct {
	id   string
	port uint16
	sb   *bothy.Sandbox
}

// ServePort answers a request for a port of a sandbox in E2B's way, if it is one. The sandbox
// and the port are those in the host name, or empty.
func (d *Door) ServePort(w http.ResponseWriter, r *http.Request, sandbox string, port uint16) bool {
	if sandbox == "" {
		sandbox, port = d.formerName(r.Host)
	}
	t := target{id: sandbox, port: port}
	named := sandbox != ""
	byHeader := r.Header.Get(headerSandbox) != "" && !forControl(r)
	switch {
	case byHeader:
		t = target{id: bareID(r.Header.Get(headerSandbox)), port: portOf(r.Header.Get(headerPort))}
	case !named && sandboxOf(r.Header.Get(headerAgent)) != "" && !forControl(r): // older clients do not send it
		t.id, t.port = sandboxOf(r.Header.Get(headerAgent)), agentPort
		byHeader = true
	case !named && isSigned(r):
		t.id, t.port = d.signedFor(r), agentPort
	case !named:
		return false
	}
	sb, err := d.Server.Find(r.Context(), t.id)
	if err != nil && bothy.ErrorCode(err) != bothy.CodeSandboxNotFound && bothy.ErrorCode(err) != bothy.CodeNotFound {
		d.serve(w, r, t, refuseAll(err), nil)
		return true
	}
	if err == nil {
		t.sb = sb
	}
	return d.serveTarget(w, r, t, byHeader)
}

// former is the host name of a port as clients wrote it when they still named the client, too.
var former = regexp.MustCompile(`^([1-9][0-9]{0,4})-([a-z0-9]+)-` + clientID + `$`)

// formerName parses the host name of an old client; without one the sandbox is "".
func (d *Door) formerName(host string) (sandbox string, port uint16) {
	label, domain, _ := strings.Cut(strings.ToLower(host), ".")
	m := former.FindStringSubmatch(label)
	if m == nil || d.config.Domain == nil || withoutPort(domain) != withoutPort(d.config.Domain()) {
		return "", 0
	}
	n, err := strconv.ParseUint(m[1], 10, 16)
	if err != nil {
		return "", 0
	}
	return m[2], uint16(n)
}

func withoutPort(host string) string {
	host, _, _ = strings.Cut(host, ":")
	return host
}

// forControl reports whether a request that names a sandbox in its header is nevertheless for
// the control API: old clients set the header on all of their requests.
func forControl(r *http.Request) bool {
	if r.Header.Get("X-Api-Key") == "" || portOf(r.Header.Get(headerPort)) != agentPort {
		return false
	}
	_, agent := agentCall(r)
	return !agent
}

// portOf parses a port, by default the agent's; 0 is invalid.
func portOf(text string) uint16 {
	if text == "" {
		return agentPort
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

// reachable reports whether a sandbox is running, or resumes on request.
func (t target) reachable() bool {
	if t.sb == nil {
		return false
	}
	switch stateOf(t.sb.State) {
	case "running":
		return true
	case "paused":
		return t.sb.AutoResume
	}
	return false
}

// serveTarget answers alike for every sandbox, also for one that does not exist, until the
// request has shown a token.
func (d *Door) serveTarget(w http.ResponseWriter, r *http.Request, t target, byHeader bool) bool {
	if t.port == agentPort {
		d.serveAgent(w, r, t)
		return true
	}
	h, ok := d.holderOf(r, t)
	if !ok && t.port != interpreterPort && d.public(t) && !hasOtherCredential(r) {
		h, ok = publicHolder(t.sb), true
	}
	if !ok && !byHeader && (!d.closed(t) || hasOtherCredential(r) || r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "") {
		return false // a link of the REST API may open it
	}
	if !ok {
		h = refuseAll(needsToken(t))
	}
	if t.port == interpreterPort {
		d.serve(w, r, t, h, d.interpreter(t))
		return true
	}
	d.serve(w, r, t, h, func(w http.ResponseWriter, r *http.Request) error {
		stripTokens(r.Header)
		d.Server.ShowPort(w, r, t.id, t.port)
		return nil
	})
	return true
}

// public reports whether anyone may use a sandbox's ports: that is, if an E2B client created it,
// and did not ask to close them. Whoever knows its name is also told that it is gone.
func (d *Door) public(t target) bool { return t.sb != nil && d.open(t.sb) }

// closed reports whether a sandbox that an E2B client created has ports that need a token.
func (d *Door) closed(t target) bool {
	return t.port != interpreterPort && t.sb != nil && t.sb.Metadata[markName] != "" && !d.open(t.sb)
}

// open reports whether a sandbox was made with ports for everyone.
func (d *Door) open(sb *bothy.Sandbox) bool {
	return d.config.PublicPorts && sb.Metadata[markName] != "" && sb.Metadata[markPrivate] == ""
}

// hasOtherCredential reports whether a request has a credential for ports of the REST API, which
// records the caller.
func hasOtherCredential(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/_bothy/") || r.URL.Query().Has("bothy_link") || r.Header.Get("X-Bothy-Link") != ""
}

func needsToken(t target) error {
	const what = "port %d of sandbox %s needs the token that came with the sandbox"
	if t.port == agentPort || t.port == interpreterPort {
		return bothy.Errorf(bothy.CodeUnauthenticated, what, t.port, t.id).
			WithHint("Send the access token as %s; the traffic access token is for other ports", headerAgent)
	}
	return bothy.Errorf(bothy.CodeForbidden, what, t.port, t.id).WithHint("Send it as %s", headerTraffic)
}

// holderOf finds the caller of a request by a token in its header that opens the port.
func (d *Door) holderOf(r *http.Request, t target) (holder, bool) {
	if h, ok := d.byToken(r.Context(), tokenForAgent, t, r.Header.Get(headerAgent)); ok {
		return h, true
	}
	if !d.opensByTraffic(r, t) {
		return nil, false
	}
	return d.byToken(r.Context(), tokenForTraffic, t, r.Header.Get(headerTraffic))
}

// opensByTraffic reports whether a port may be used with the token for visitors. E2B's clients
// send nothing else to manage contexts of code, so it opens those if visitors need no token.
func (d *Door) opensByTraffic(r *http.Request, t target) bool {
	switch t.port {
	case agentPort:
		return false
	case interpreterPort:
		contexts := r.URL.Path == "/contexts" || strings.HasPrefix(r.URL.Path, "/contexts/")
		return contexts && (t.sb == nil || d.open(t.sb))
	}
	return true
}

func stripTokens(h http.Header) {
	for _, name := range []string{headerSandbox, headerPort, headerAgent, headerTraffic} {
		h.Del(name)
	}
}

// serve makes the server handle a request for a port.
func (d *Door) serve(w http.ResponseWriter, r *http.Request, t target, h holder, f Handler) {
	d.serveCall(w, r, t, Call{ID: "e2b:port", Scope: bothy.ScopeSandboxesWrite}, h, f)
}

func (d *Door) serveCall(w http.ResponseWriter, r *http.Request, t target, c Call, h holder, f Handler) {
	if !t.reachable() {
		f = func(http.ResponseWriter, *http.Request) error { return notFound(t.id) }
	}
	ctx := context.WithValue(r.Context(), targetKey{}, t)
	r = r.WithContext(ctx)
	d.Server.Note(r, t.id, strconv.Itoa(int(t.port))+" "+r.Method+" "+r.URL.Path, "")
	d.Server.ServePort(w, r, c, h, f)
}

type targetKey struct{}

// edgeFailure is the answer if a sandbox's port cannot be reached.
type edgeFailure struct {
	failure
	SandboxID string `json:"sandboxId,omitempty"`
	Port      uint16 `json:"port,omitempty"`
}

// gone are the errors that clients see as a missing sandbox.
var gone = map[bothy.Code]bool{
	bothy.CodeSandboxNotFound: true, bothy.CodeSandboxEnded: true, bothy.CodeSandboxPaused: true, bothy.CodeSandboxNotReady: true,
}

// FailPort answers a request for a port with an error. Clients recognise it by the
// status 502 and this text.
func FailPort(w http.ResponseWriter, r *http.Request, status int, err *bothy.Error) {
	t, _ := r.Context().Value(targetKey{}).(target)
	f := edgeFailure{failureOf(status, err), t.id, 0}
	switch {
	case err.Detail == signatureInvalid || err.Detail == signatureExpired:
		f = edgeFailure{failure: failure{Code: status, Message: err.Detail}}
	case err.Code == bothy.CodeForbidden:
		f.Name = "" // it names a scope, and there is none
	case gone[err.Code]:
		f.failure = failure{Code: http.StatusBadGateway, Message: "The sandbox was not found"}
	case (err.Code == bothy.CodeConflict || err.Code == bothy.CodeGuest) && t.port != 0:
		f.failure = failure{Code: http.StatusBadGateway, Message: "The sandbox is running but port is not open"}
		f.Port = t.port
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Code)
	_ = json.NewEncoder(w).Encode(f)
}

// agentProxy forwards requests to the agents in sandboxes.
func (d *Door) agentProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:     agentTransport{d.Guests},
		FlushInterval: -1,
		Rewrite:       rewriteForAgent,
		ModifyResponse: func(res *http.Response) error {
			// The answer is the sandbox's, and may be served under this server's own name.
			for _, name := range []string{"Set-Cookie", "Clear-Site-Data", "X-Request-Id", "Cache-Control", "Expires", "X-Accel-Redirect"} {
				res.Header.Del(name)
			}
			res.Header.Set("Content-Security-Policy", "sandbox")
			return nil
		},
		ErrorLog: slog.NewLogLogger(d.config.Log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if failed, ok := r.Context().Value(failedKey{}).(*error); ok {
				*failed = err
			}
		},
	}
}

// failedKey is the context key for the proxy's error, so that it is handled like all errors.
type failedKey struct{}

type agentTransport struct{ guests Guests }

func (t agentTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	at, _ := r.Context().Value(targetKey{}).(target)
	return t.guests.GuestHTTP(at.id, r)
}

func rewriteForAgent(p *httputil.ProxyRequest) {
	p.Out.URL.Scheme, p.Out.URL.Host = "http", "guest"
	stripTokens(p.Out.Header)
	if !strings.HasPrefix(p.Out.Header.Get("Authorization"), "Basic ") {
		p.Out.Header.Del("Authorization")
	}
	p.Out.Header.Del("X-Api-Key")
	q := p.Out.URL.Query()
	if q.Has("signature") {
		q.Del("signature")
		q.Del("signature_expiration")
		p.Out.URL.RawQuery = q.Encode()
	}
}

func (d *Door) serveAgent(w http.ResponseWriter, r *http.Request, t target) {
	c, ok := agentCall(r)
	h, known := d.holderOf(r, t)
	switch {
	case !known && isSigned(r):
		var err error
		if h, err = d.signed(r, t.sb); err != nil {
			h = refuseAll(err)
		}
	case !known:
		h = refuseAll(needsToken(t))
	case r.URL.Path == "/files/compose":
		h = refuseAll(unsupported("files cannot be joined from parts (/files/compose)").
			WithHint("Send the file whole to /files, which takes any size"))
	case !ok:
		h = refuseAll(bothy.Errorf(bothy.CodeNotFound, "the agent has no %s %s", r.Method, r.URL.Path))
	}
	d.serveCall(w, r, t, c, h, func(w http.ResponseWriter, r *http.Request) error {
		plain(r)
		if err := unwrapForm(r); err != nil {
			return err
		}
		if err := d.noteCall(r, t); err != nil {
			return err
		}
		var failed error
		d.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), failedKey{}, &failed)))
		return failed
	})
}

// agentPaths are the agent's paths that clients may call, and what they change.
var agentPaths = map[string]Call{
	"/health":  {ID: "e2b:health"},
	"/metrics": {ID: "e2b:metrics"},
	"/envs":    {ID: "e2b:envs"},
	"/files":   {ID: "e2b:files", Audit: true},
}

// streams are the calls that do not end by themselves.
var streams = map[string]bool{
	"/process.Process/Start": true, "/process.Process/Connect": true, "/process.Process/StreamInput": true,
	"/filesystem.Filesystem/WatchDir": true,
}

// readers are the calls that change nothing.
var readers = map[string]bool{
	"/process.Process/List": true, "/process.Process/Connect": true,
	"/filesystem.Filesystem/Stat": true, "/filesystem.Filesystem/ListDir": true, "/filesystem.Filesystem/WatchDir": true,
	"/filesystem.Filesystem/CreateWatcher": true, "/filesystem.Filesystem/GetWatcherEvents": true, "/filesystem.Filesystem/RemoveWatcher": true,
}

// agentCall finds the agent's call that a request is for. Only calls that E2B's clients need are
// allowed: the agent offers more to this server.
func agentCall(r *http.Request) (Call, bool) {
	p := r.URL.Path
	if path.Clean(p) != p || r.URL.RawPath != "" {
		return Call{}, false
	}
	if c, ok := agentPaths[p]; ok {
		return c, true
	}
	service, method, ok := strings.Cut(strings.TrimPrefix(p, "/"), "/")
	if !ok || service != "process.Process" && service != "filesystem.Filesystem" || strings.Contains(method, "/") {
		return Call{}, false
	}
	return Call{ID: "e2b:" + method, Stream: streams[p], Reads: readers[p]}, true
}
