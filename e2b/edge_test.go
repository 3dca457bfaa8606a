package e2b

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// edgeServer is a server with some sandboxes, which shows their ports as the text "shown".
type edgeServer struct {
	Server
	sandboxes map[string]*bothy.Sandbox
}

func (s edgeServer) Find(_ context.Context, id string) (*bothy.Sandbox, error) {
	if sb := s.sandboxes[id]; sb != nil {
		return sb, nil
	}
	return nil, notFound(id)
}

func (s edgeServer) Alive(context.Context) (alive []*bothy.Sandbox, err error) {
	for _, sb := range s.sandboxes {
		if stateOf(sb.State) != "" {
			alive = append(alive, sb)
		}
	}
	return alive, nil
}

func (edgeServer) Note(*http.Request, string, string, string) {}

func (edgeServer) ShowPort(w http.ResponseWriter, _ *http.Request, _ string, _ uint16) {
	_, _ = io.WriteString(w, "shown")
}

func (edgeServer) ServePort(w http.ResponseWriter, r *http.Request, _ Call, hold func(func(error)) (*bothy.Caller, func(), error), h Handler) {
	_, release, err := hold(func(error) {})
	if err == nil {
		defer release()
		err = h(w, r)
	}
	if err != nil {
		status := http.StatusUnauthorized
		if bothy.ErrorCode(err) == bothy.CodeForbidden {
			status = http.StatusForbidden
		}
		FailPort(w, r, status, bothy.AsError(err))
	}
}

// edgeKeys has one key, tok_1, in every project.
type edgeKeys struct{}

func (edgeKeys) IDs(context.Context, string) ([]string, error) { return []string{"tok_1"}, nil }

func (edgeKeys) HoldID(_ context.Context, project, id string, _ func(error)) (*bothy.Caller, func(), error) {
	if id != "tok_1" {
		return nil, nil, bothy.Errorf(bothy.CodeUnauthenticated, "the key has ended")
	}
	return &bothy.Caller{ProjectID: project, Scopes: []bothy.Scope{bothy.ScopeSandboxesWrite}}, func() {}, nil
}

// edgeGuests answers every call to an agent.
type edgeGuests struct{}

func (edgeGuests) GuestHTTP(string, *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("agent"))}, nil
}

type edgeCode struct{ bothy.CodeService }

func (edgeCode) Contexts(context.Context, string) ([]bothy.CodeContext, error) { return nil, nil }

func (edgeCode) RunCode(context.Context, string, bothy.CodeRequest) (*bothy.CodeResult, error) {
	return nil, unsupported("code was run")
}

func edge() *Door {
	marks := func(more ...string) map[string]string {
		m := map[string]string{markName: "base"}
		for _, k := range more {
			m[k] = "true"
		}
		return m
	}
	return New(Services{
		Server: edgeServer{sandboxes: map[string]*bothy.Sandbox{
			"public":  {ID: "public", ProjectID: "p", State: bothy.StateRunning, Metadata: marks()},
			"private": {ID: "private", ProjectID: "p", State: bothy.StateRunning, Metadata: marks(markPrivate)},
			"rest":    {ID: "rest", ProjectID: "q", State: bothy.StateRunning},
			"asleep":  {ID: "asleep", ProjectID: "p", State: bothy.StatePaused, AutoResume: true, Metadata: marks(markPrivate)},
			"paused":  {ID: "paused", ProjectID: "p", State: bothy.StatePaused, Metadata: marks()},
			"dead":    {ID: "dead", ProjectID: "p", State: bothy.StateStopped, Metadata: marks()},
		}},
		Keys: edgeKeys{}, Guests: edgeGuests{}, Code: edgeCode{},
	}, Config{PublicPorts: true, Secret: []byte("s"), Domain: func() string { return "boxes.example.org:8443" }})
}

// ask asks for a port, by the header or by its host name. The status is 0 if the other API answers.
func (d *Door) ask(byName bool, sandbox, port, method, path string, headers map[string]string) (int, string) {
	r := httptest.NewRequest(method, "http://x"+path, strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	for k, v := range headers {
		r.Header.Set(k, v)
	}
	name := ""
	if byName {
		name = sandbox
	} else {
		r.Header.Set(headerSandbox, sandbox)
		r.Header.Set(headerPort, port)
	}
	w := httptest.NewRecorder()
	if !d.ServePort(w, r, name, portOf(port)) {
		return 0, ""
	}
	return w.Code, strings.ReplaceAll(w.Body.String(), sandbox, "ID")
}

// TestTrafficToken checks that the token for visitors of ports opens nothing of the agent and
// runs no code.
func TestTrafficToken(t *testing.T) {
	d := edge()
	for _, c := range []struct {
		sandbox, port, method, path string
		visitor, owner              int // the statuses with the token for traffic, and for the agent
	}{
		{"private", "8000", "GET", "/", 200, 200},
		{"private", "49983", "POST", "/process.Process/Start", 401, 200},
		{"private", "49983", "POST", "/filesystem.Filesystem/Remove", 401, 200},
		{"private", "49983", "GET", "/files?path=/etc/shadow", 401, 200},
		{"private", "49983", "GET", "/envs", 401, 200},
		{"private", "49983", "GET", "/health", 401, 200},
		{"private", "49999", "POST", "/execute", 401, 501},
		{"private", "49999", "GET", "/contexts", 401, 200},
		{"public", "49983", "POST", "/process.Process/Start", 401, 200},
		{"public", "49999", "POST", "/execute", 401, 501},
		{"public", "49999", "GET", "/health", 401, 200},
		{"public", "49999", "GET", "/contexts", 200, 200}, // E2B's clients send nothing else for it
		{"dead", "49983", "GET", "/health", 401, 502},
		{"dead", "8000", "GET", "/", 502, 502},
		{"missing", "8000", "GET", "/", 502, 502},
	} {
		for header, want := range map[string]int{headerTraffic: c.visitor, headerAgent: c.owner} {
			what := map[string]string{headerTraffic: tokenForTraffic, headerAgent: tokenForAgent}[header]
			token := d.token(what, "tok_1", c.sandbox)
			if got, said := d.ask(false, c.sandbox, c.port, c.method, c.path, map[string]string{header: token}); got != want {
				t.Errorf("%s %s:%s%s with the token for the %s: %d %s, want %d", c.method, c.sandbox, c.port, c.path, what, got, said, want)
			}
			if what == tokenForTraffic {
				if got, _ := d.ask(false, c.sandbox, c.port, c.method, c.path, map[string]string{headerAgent: token}); got == 200 {
					t.Errorf("%s %s:%s%s takes the token for traffic in the other header", c.method, c.sandbox, c.port, c.path)
				}
			}
		}
	}
}

// TestNothingToldWithoutToken compares what a stranger is told of sandboxes that run, sleep, are
// somebody else's, have ended or never were.
func TestNothingToldWithoutToken(t *testing.T) {
	d := edge()
	signed := url.Values{"path": {"/etc/hostname"}, "signature": {"v1_none"}}.Encode()
	for _, headers := range []map[string]string{
		nil, {headerAgent: "none"}, {headerTraffic: "none"},
		{headerAgent: d.token(tokenForAgent, "tok_1", "another")}, {headerTraffic: d.token(tokenForTraffic, "tok_1", "another")},
		{headerAgent: New(Services{}, Config{Secret: []byte("other")}).token(tokenForAgent, "tok_1", "private")},
	} {
		for _, at := range [][2]string{
			{"49983", "/health"}, {"49983", "/envs"}, {"49983", "/files/compose"}, {"49983", "/none"}, {"49983", "/files?" + signed},
			{"49983", "/process.Process/List"}, {"49999", "/health"}, {"49999", "/execute"}, {"49999", "/contexts"}, {"49999", "/none"}, {"8000", "/"},
		} {
			for _, byName := range []bool{false, true} {
				status, said := d.ask(byName, "missing", at[0], "GET", at[1], headers)
				if status != 0 && status != map[bool]int{true: 403, false: 401}[at[0] == "8000"] {
					t.Errorf("a sandbox that does not exist answers %d at %v", status, at)
				}
				for _, id := range []string{"private", "rest", "asleep", "paused", "dead"} {
					if at[0] == "8000" && (byName || id == "paused" || id == "dead") {
						continue // see TestPortsOfVisitors
					}
					if got, text := d.ask(byName, id, at[0], "GET", at[1], headers); got != status || text != said {
						t.Errorf("by name %v, %v: %s answers %d %s, and one that does not exist %d %s", byName, at, id, got, text, status, said)
					}
				}
			}
		}
	}
}

// A visitor without a token is told that a port needs one, whatever its sandbox does, and does not
// wake it; and that a sandbox is gone whose ports were for everyone.
func TestPortsOfVisitors(t *testing.T) {
	d := edge()
	for id, want := range map[string]int{"private": 403, "asleep": 403, "public": 200, "paused": 502, "dead": 502, "rest": 0, "missing": 0} {
		for _, headers := range []map[string]string{nil, {headerTraffic: "none"}} {
			if status, said := d.ask(true, id, "8000", "GET", "/", headers); status != want {
				t.Errorf("%s: %d %s, want %d", id, status, said, want)
			}
		}
	}
	for header, value := range map[string]string{"Authorization": "Bearer bothy_x", "Cookie": "bothy_link=x"} {
		if status, said := d.ask(true, "private", "8000", "GET", "/", map[string]string{header: value}); status != 0 {
			t.Errorf("with %s: %d %s; the REST API should decide", header, status, said)
		}
	}
}

// TestSignedAddressOfTheDead checks that a valid signature is told that its sandbox is gone.
func TestSignedAddressOfTheDead(t *testing.T) {
	d := edge()
	for id, want := range map[string]int{"private": 200, "dead": 502, "paused": 502} {
		q := url.Values{"path": {"a"}, "username": {"user"}}
		q.Set("signature", signature("GET", q, d.token(tokenForAgent, "tok_1", id)))
		if got, said := d.ask(false, id, "49983", "GET", "/files?"+q.Encode(), nil); got != want {
			t.Errorf("%s: %d %s, want %d", id, got, said, want)
		}
	}
}

// Clients compare the whole body with the one of E2B's agent. Only a signature that was right is
// told that its time is over.
func TestBodiesOfSignedAddresses(t *testing.T) {
	d := edge()
	past := url.Values{"path": {"a"}, "username": {"user"}, "signature_expiration": {"1"}}
	past.Set("signature", signature("GET", past, d.token(tokenForAgent, "tok_1", "private")))
	forged := url.Values{"path": {"a"}, "signature_expiration": {"1"}, "signature": {"v1_none"}}
	for q, want := range map[string]string{
		past.Encode():   `{"code":401,"message":"signature is already expired"}`,
		forged.Encode(): `{"code":401,"message":"invalid signature"}`,
	} {
		if status, got := d.ask(false, "private", "49983", "GET", "/files?"+q, nil); status != 401 || strings.TrimSpace(got) != want {
			t.Errorf("%s: %d %s, want %s", q, status, got, want)
		}
	}
}

// Clients that still name themselves in the host name reach the same ports.
func TestHostNamesOfOldClients(t *testing.T) {
	d := edge()
	for host, want := range map[string]string{
		"3000-public-bothy.boxes.example.org": "shown", "3000-public-bothy.Boxes.example.org:8443": "shown",
		"3000-rest-bothy.boxes.example.org": "", "3000-missing-bothy.boxes.example.org": "", "0-public-bothy.boxes.example.org": "",
		"03000-public-bothy.boxes.example.org": "", "3000-public-other.boxes.example.org": "", "3000-public-bothy.example.org": "",
	} {
		r := httptest.NewRequest("GET", "http://x/", nil)
		r.Host = host
		w := httptest.NewRecorder()
		if d.ServePort(w, r, "", 0); w.Body.String() != want {
			t.Errorf("%s: %d %s", host, w.Code, w.Body)
		}
	}
}

// endingCode is an interpreter whose sandbox ends while code runs.
type endingCode struct {
	edgeCode
	server edgeServer
	began  bool
}

func (c endingCode) RunCode(context.Context, string, bothy.CodeRequest) (*bothy.CodeResult, error) {
	return &bothy.CodeResult{}, nil
}

func (c endingCode) RunCodeStream(_ context.Context, id string, _ bothy.CodeRequest, fn func(bothy.CodeEvent) error) error {
	if c.began {
		if err := fn(bothy.CodeEvent{Stream: "stdout", Data: "1"}); err != nil {
			return err
		}
	}
	c.server.sandboxes[id].State = bothy.StateStopped
	return bothy.Errorf(bothy.CodeGuest, "the agent has closed the connection")
}

// Clients raise their time-out error if a sandbox ends below their code: they look for it when
// the answer has no end.
func TestSandboxEndsDuringCode(t *testing.T) {
	for _, began := range []bool{false, true} {
		d := edge()
		d.Code = endingCode{server: d.Server.(edgeServer), began: began}
		var cut any
		var status int
		func() {
			defer func() { cut = recover() }()
			status, _ = d.ask(false, "public", "49999", "POST", "/execute", map[string]string{headerAgent: d.token(tokenForAgent, "tok_1", "public")})
		}()
		if began != (cut == http.ErrAbortHandler) || !began && status != http.StatusBadGateway {
			t.Errorf("after output %v: %d, cut %v", began, status, cut)
		}
	}
}
