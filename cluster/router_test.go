package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

const aSandbox = "sbx0123456789abcdef"

// openVault seals nothing.
type openVault struct{}

func (openVault) Seal(plain []byte, _ string) ([]byte, error)  { return plain, nil }
func (openVault) Open(sealed []byte, _ string) ([]byte, error) { return sealed, nil }

// shared is the database of some hosts.
type shared struct {
	mu          sync.Mutex
	certificate string
	key         []byte
	owner       store.Ownership
	asked       int
	claimed     int
	peers       []bothy.ClusterHost
}

// rest is what these tests do not need.
type rest interface{ store.Hosts }

// hosts is one host's view of it.
type hosts struct {
	rest
	self  string
	epoch int64
	*shared
}

func (h hosts) Epoch() int64 { return h.epoch }

func (h hosts) Peers(context.Context) ([]bothy.ClusterHost, error) { return h.peers, nil }

func (h hosts) Self() string { return h.self }

func (h hosts) Authority(_ context.Context, make func() (string, []byte, error)) (string, []byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.certificate == "" {
		var err error
		if h.certificate, h.key, err = make(); err != nil {
			return "", nil, err
		}
	}
	return h.certificate, h.key, nil
}

func (h hosts) SandboxHost(context.Context, string) (store.Ownership, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked++
	return h.owner, nil
}

func (h hosts) ClaimSandbox(context.Context, string) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.claimed++
	return true, nil
}

// peer is another host, and what it was asked.
type peer struct {
	close   func()
	address string
	answer  http.HandlerFunc
	mu      sync.Mutex
	bodies  []string
}

func newPeer(t *testing.T, name string, s *shared, answer http.HandlerFunc) *peer {
	t.Helper()
	a, err := OpenAuthority(t.Context(), hosts{self: name, shared: s}, openVault{})
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{answer: answer}
	x := httptest.NewUnstartedServer(FromPeers(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Expect") != "" && r.Header.Get("X-Refuse") != "" {
			p.note("unread")
			p.answer(w, r)
			return
		}
		b, _ := io.ReadAll(r.Body)
		p.note(string(b))
		p.answer(w, r)
	}), http.NotFoundHandler(), http.NotFoundHandler(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.answer(w, r)
	})))
	x.TLS = a.Server()
	x.StartTLS()
	t.Cleanup(x.Close)
	p.close = x.Close
	p.address = x.Listener.Addr().String()
	return p
}

func (p *peer) note(body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bodies = append(p.bodies, body)
}

func misdirected(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(http.StatusMisdirectedRequest)
	_ = json.NewEncoder(w).Encode(map[string]any{"code": bothy.CodeMisdirected})
}

func answers(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }

func hangsUp(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }

// newRouter is the router of a host that has no sandboxes.
func newRouter(t testing.TB, s *shared) *httptest.Server {
	t.Helper()
	h := hosts{self: "one", shared: s}
	a, err := OpenAuthority(t.Context(), h, openVault{})
	if err != nil {
		t.Fatal(err)
	}
	x := NewRouter(RouterOptions{
		Hosts: h, Authority: a, Gate: &Gate{}, Here: func(string) bool { return false }, Port: func(*http.Request) string { return "" },
		Upload: func(*http.Request) string { return "" }, HasBuild: func(string) bool { return false }, Agents: "/mcp",
		Authenticate: func(*http.Request) (Caller, error) { return Caller{}, nil }, Log: slog.New(slog.DiscardHandler),
		Keeper: NewKeeper(KeeperOptions{Times: Times{Lease: time.Hour}, Renewed: time.Now}),
		Fail: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, string(bothy.ErrorCode(err)), 599)
		},
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handled, leave := x.Route(w, r)
		defer leave()
		if !handled {
			_, _ = io.WriteString(w, "here")
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func post(t *testing.T, url string, body io.Reader) string {
	t.Helper()
	res, err := http.Post(url+"/v1/sandboxes/"+aSandbox+"/exec", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", res.StatusCode, strings.TrimSpace(string(b)))
}

// A host that does not have the sandbox any more says so, and the one that has it by the
// database is asked, once, with the whole request.
func TestAWrongHostIsAskedOnce(t *testing.T) {
	s := &shared{}
	two, three := newPeer(t, "two", s, answers), newPeer(t, "three", s, answers)
	one := newRouter(t, s)
	s.owner = store.Ownership{Host: "two", Address: two.address}
	if got := post(t, one.URL, strings.NewReader(`{"a":1}`)); got != "200 done" {
		t.Fatalf("at first: %s", got)
	}
	two.answer = misdirected
	s.owner, s.asked = store.Ownership{Host: "three", Address: three.address}, 0
	large := strings.Repeat("x", maxReplay)
	if got := post(t, one.URL, strings.NewReader(large)); got != "200 done" {
		t.Errorf("after it has moved: %s", got)
	}
	if len(two.bodies) != 2 || len(three.bodies) != 1 || three.bodies[0] != large || s.asked != 1 {
		t.Errorf("the hosts were asked %d and %d times, and the database %d times", len(two.bodies), len(three.bodies), s.asked)
	}
	// It knows by now.
	if got := post(t, one.URL, strings.NewReader("{}")); got != "200 done" || len(two.bodies) != 2 || s.asked != 1 {
		t.Errorf("the next time: %s", got)
	}
	// One that moves on and on is not followed for ever.
	three.answer = misdirected
	s.owner = store.Ownership{Host: "two", Address: two.address}
	if got := post(t, one.URL, strings.NewReader("{}")); got != "599 store_unavailable" || len(three.bodies) != 3 || len(two.bodies) != 3 {
		t.Errorf("where nobody has it: %s, %d %d", got, len(three.bodies), len(two.bodies))
	}
	// It may have come here meanwhile.
	s.owner = store.Ownership{Host: "one"}
	if got := post(t, one.URL, strings.NewReader("{}")); got != "200 here" {
		t.Errorf("where this host has it: %s", got)
	}
}

// A body of unknown length is sent to the right host even so, since the wrong one refuses
// before it has asked for it.
func TestAWrongHostDoesNotUseTheBodyUp(t *testing.T) {
	s := &shared{}
	two, three := newPeer(t, "two", s, misdirected), newPeer(t, "three", s, answers)
	one := newRouter(t, s)
	s.owner = store.Ownership{Host: "two", Address: two.address}
	before := two.answer
	two.answer = answers
	post(t, one.URL, strings.NewReader("{}"))
	two.answer = before
	s.owner = store.Ownership{Host: "three", Address: three.address}
	content := strings.Repeat("content ", 1<<18)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, one.URL+"/v1/sandboxes/"+aSandbox+"/files", io.MultiReader(strings.NewReader(content)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Refuse", "1")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK || len(three.bodies) != 1 {
		t.Fatalf("%s, %d", res.Status, len(three.bodies))
	}
}

// A host that died since it answered last is not asked: its sandbox is claimed at once.
func TestAnOwnerThatHasDiedIsForgotten(t *testing.T) {
	s := &shared{}
	two := newPeer(t, "two", s, answers)
	one := newRouter(t, s)
	s.owner = store.Ownership{Host: "two", Address: two.address}
	if got := post(t, one.URL, strings.NewReader("{}")); got != "200 done" {
		t.Fatal(got)
	}
	two.close()
	s.owner = store.Ownership{Sandbox: bothy.StatePaused}
	if got := post(t, one.URL, strings.NewReader("{}")); got != "200 here" || s.claimed != 1 {
		t.Errorf("%s, claimed %d times", got, s.claimed)
	}
	s.owner = store.Ownership{Host: "two", Address: two.address}
	if got := post(t, one.URL, strings.NewReader("{}")); got != "599 store_unavailable" || s.claimed != 1 {
		t.Errorf("of a host that may live: %s, claimed %d times", got, s.claimed)
	}
}

// One that does not answer may have done what was asked: nobody else is asked.
func TestASilentHostIsAskedNoMore(t *testing.T) {
	s := &shared{}
	two, three := newPeer(t, "two", s, hangsUp), newPeer(t, "three", s, answers)
	one := newRouter(t, s)
	s.owner = store.Ownership{Host: "two", Address: two.address}
	if got := post(t, one.URL, strings.NewReader("{}")); got != "599 store_unavailable" || len(three.bodies) != 0 || len(two.bodies) != 1 {
		t.Errorf("%s, %d %d", got, len(two.bodies), len(three.bodies))
	}
}

// The body of a request ends by itself: who sends it looks for more after its last byte, when
// the answer may have begun and the body be closed.
func TestAWatchedBodyEndsByItself(t *testing.T) {
	for what, left := range map[string]int64{"of a known size": 7, "of an unknown size": -1} {
		inner := &closing{r: strings.NewReader("content")}
		b := &watchedBody{ReadCloser: inner, left: left}
		got := make([]byte, 7)
		if _, err := io.ReadFull(b, got); err != nil || string(got) != "content" || !b.began.Load() {
			t.Errorf("%s: %q %v", what, got, err)
		}
		inner.closed = left >= 0
		if n, err := b.Read(got); n != 0 || err != io.EOF {
			t.Errorf("%s, at its end: %d %v", what, n, err)
		}
	}
}

// closing is the body of a request, which cannot be read once it is closed.
type closing struct {
	r      io.Reader
	closed bool
}

func (c *closing) Read(p []byte) (int, error) {
	if c.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return c.r.Read(p)
}

func (c *closing) Close() error { return nil }

func TestSessionIDsSayWhoseTheyAre(t *testing.T) {
	h := hosts{self: "host-1", epoch: 17}
	ids := SessionIDs(h)
	a, b := ids(), ids()
	if name, epoch, ok := sessionHost(a); a == b || name != "host-1" || epoch != 17 || !ok {
		t.Errorf("%q, %q: %s %d %v", a, b, name, epoch, ok)
	}
	for _, id := range []string{"", "WQIE5ODWZTO6AKLUNXO2KGMWAJ", "host.x.y", "host.17"} {
		if _, _, ok := sessionHost(id); ok {
			t.Errorf("%q is taken for a host's", id)
		}
	}
}

func TestRequestsAboutBuilds(t *testing.T) {
	for request, want := range map[string]string{
		"POST /v1/templates/builds": "yes ", "GET /v1/templates/builds": "yes ", "GET /v1/templates/builds/bld_1": "yes bld_1",
		"GET /v1/templates/builds/bld_1/logs": "yes bld_1", "DELETE /v1/templates/builds/bld_1": "yes bld_1", "POST /v1/templates/contexts": "yes ",
		"POST /v3/templates": "yes ", "POST /v2/templates": "yes ", "POST /v2/templates/t/builds/b": "yes b", "GET /templates/t/builds/b/status": "yes b",
		"GET /templates/t/builds/b/logs": "yes b", "GET /templates/t/files/hash": "yes ", "PUT /templates/upload/token": "yes ",
		"GET /v1/templates": "no", "GET /v1/templates/t": "no", "GET /templates": "no", "GET /v2/templates": "no", "DELETE /templates/t": "no", "POST /v1/sandboxes": "no", "GET /": "no",
	} {
		method, path, _ := strings.Cut(request, " ")
		got := "no"
		if build, id := ofBuild(httptest.NewRequest(method, path, nil)); build {
			got = "yes " + id
		}
		if got != want {
			t.Errorf("%s: %q, want %q", request, got, want)
		}
	}
}

// All hosts agree on which host runs the builds of a project, and not all projects have
// the same one. Those that take no new work come last, and dead ones not at all.
func TestBuildersOfAProject(t *testing.T) {
	hosts := []bothy.ClusterHost{
		{Name: "a", State: bothy.HostUp, LeaseSeconds: 5}, {Name: "b", State: bothy.HostUp, LeaseSeconds: 5}, {Name: "c", State: bothy.HostUp, LeaseSeconds: 5},
		{Name: "d", State: bothy.HostDraining, LeaseSeconds: 5}, {Name: "e", State: bothy.HostDead}, {Name: "f", State: bothy.HostUp, LeaseSeconds: -1},
	}
	names := func(list []bothy.ClusterHost) (s string) {
		for _, h := range list {
			s += h.Name
		}
		return s
	}
	firsts := map[string]int{}
	for i := range 300 {
		project := fmt.Sprint("project ", i)
		order := names(builders(hosts, project))
		for self := range 4 {
			seen := slices.Clone(hosts)
			slices.Reverse(seen)
			seen[len(seen)-1-self].Self = true
			if got := names(builders(seen, project)); got != order {
				t.Fatalf("%s: %s and %s", project, order, got)
			}
		}
		if len(order) != 4 || order[3] != 'd' {
			t.Fatalf("%s: %s", project, order)
		}
		firsts[order[:1]]++
	}
	for _, h := range hosts[:3] {
		if n := firsts[h.Name]; n < 50 {
			t.Errorf("%s makes the builds of %d of 300 projects: %v", h.Name, n, firsts)
		}
	}
}

// A build is looked for on the other hosts where this one does not know it, and what is said of
// one that nobody knows depends on whether all were asked.
func TestABuildIsLookedForOnAllHosts(t *testing.T) {
	s := &shared{}
	knows := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the build") }
	two, three := newPeer(t, "two", s, http.NotFound), newPeer(t, "three", s, knows)
	s.peers = []bothy.ClusterHost{
		{Name: "one", State: bothy.HostUp, LeaseSeconds: 5, Self: true},
		{Name: "two", Address: two.address, State: bothy.HostUp, LeaseSeconds: 5}, {Name: "three", Address: three.address, State: bothy.HostDraining, LeaseSeconds: 5},
	}
	ask := func() string {
		return fetch(t, newRouter(t, s).URL+"/v1/templates/builds/bld_1")
	}
	if got := ask(); got != "200 the build" {
		t.Errorf("where the last host knows it: %s", got)
	}
	agent := func() string {
		t.Helper()
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_build","arguments":{"build_id":"bld_1"}}}`
		res, err := http.Post(newRouter(t, s).URL+"/mcp", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d %s", res.StatusCode, strings.TrimSpace(string(b)))
	}
	two.answer = misdirected
	if got := agent(); got != "200 the build" {
		t.Errorf("where the last host knows it, an agent is told: %s", got)
	}
	three.answer = http.NotFound
	if got := ask(); got != "200 here" {
		t.Errorf("where nobody knows it, this host says so: %s", got)
	}
	s.peers[1].State = bothy.HostDead
	if got := ask(); got != "599 not_found" {
		t.Errorf("where one is lost: %s", got)
	}
	if got := agent(); got != "200 here" {
		t.Errorf("where one is lost, an agent is told by the tool: %s", got)
	}
	if err := LostBuild("bld_1", s.peers); err == nil || !strings.Contains(err.Error(), "two") {
		t.Errorf("the error is %v", err)
	}
}

// A host that is asked by another for a build which it does not know says so in a way that is no
// answer to the client.
func TestAHostThatDoesNotKnowABuildSaysSo(t *testing.T) {
	knows := ""
	x := NewRouter(RouterOptions{
		Hosts: hosts{self: "one", shared: &shared{}}, Port: func(*http.Request) string { return "" }, Agents: "/mcp", HasBuild: func(id string) bool { return id == knows },
		Fail: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, string(bothy.ErrorCode(err)), 599)
		},
	})
	ask := func() string {
		body := `{"method":"tools/call","params":{"name":"get_build","arguments":{"build_id":"bld_1"}}}`
		r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
		w := httptest.NewRecorder()
		handled, _ := x.Route(w, r.WithContext(context.WithValue(r.Context(), peerKey{}, &Peer{Host: "two"})))
		return strings.TrimSpace(fmt.Sprint(handled, " ", w.Body.String()))
	}
	if got := ask(); got != "true misdirected_request" {
		t.Errorf("a build that it does not know: %s", got)
	}
	knows = "bld_1"
	if got := ask(); got != "false" {
		t.Errorf("a build that it knows: %s", got)
	}
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", res.StatusCode, strings.TrimSpace(string(b)))
}

// A sandbox that only a dead host could resume can be deleted through any host, and nothing else
// can be done with it.
func TestASandboxOfADeadHostCanBeDeleted(t *testing.T) {
	s := &shared{owner: store.Ownership{Host: "dead", Dead: true, Sandbox: bothy.StatePaused}}
	one := newRouter(t, s)
	ask := func(request, body string) string {
		t.Helper()
		method, path, _ := strings.Cut(request, " ")
		req, err := http.NewRequestWithContext(t.Context(), method, one.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%d %s", res.StatusCode, strings.TrimSpace(string(b)))
	}
	for request, want := range map[string]string{
		"DELETE /v1/sandboxes/" + aSandbox:                   "200 here",
		"DELETE /sandboxes/" + aSandbox:                      "200 here",
		"DELETE /v1/containers/" + aSandbox:                  "200 here",
		"DELETE /v1/sandboxes/" + aSandbox + "/files?path=a": "599 store_unavailable",
		"POST /v1/sandboxes/" + aSandbox + "/resume":         "599 store_unavailable",
	} {
		if got := ask(request, ""); got != want {
			t.Errorf("%s: %s", request, got)
		}
	}
	for tool, want := range map[string]string{"terminate_sandbox": "200 here", "resume_sandbox": "599 store_unavailable"} {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":{"sandbox_id":"` + aSandbox + `"}}}`
		if got := ask("POST /mcp", body); got != want {
			t.Errorf("an agent's %s: %s", tool, got)
		}
	}
}

// A body that is read to find its host is counted in its project's memory first.
func TestABodyIsReadOnlyIntoReservedMemory(t *testing.T) {
	full := bothy.Errorf(bothy.CodeRateLimited, "no memory is left")
	var held int64
	var ended bool
	x := NewRouter(RouterOptions{
		Port: func(*http.Request) string { return "" }, Agents: "/mcp",
		Authenticate: func(r *http.Request) (Caller, error) {
			if r.Header.Get("Authorization") == "" {
				return Caller{}, bothy.Errorf(bothy.CodeUnauthenticated, "no key")
			}
			return Caller{Owner: "p"}, nil
		},
		BodyMemory: func(_ *http.Request, project string) func(context.Context, int64) error {
			return func(_ context.Context, n int64) error {
				if project != "p" || held+n > 4<<20 {
					return full
				}
				held += n
				return nil
			}
		},
		Fail: func(_ http.ResponseWriter, _ *http.Request, err error) { ended = errors.Is(err, full) },
	})
	ask := func(key string) (read int64, handled bool) {
		body := &countingReader{left: 32 << 20}
		r := httptest.NewRequest(http.MethodPost, "/mcp", body)
		r.Header.Set("Authorization", key)
		handled, leave := x.Route(httptest.NewRecorder(), r)
		leave()
		return body.read, handled
	}
	if read, handled := ask(""); read != 0 || handled {
		t.Errorf("without a key %d bytes are read", read)
	}
	if read, handled := ask("k"); !handled || !ended || read > held/peekFactor || held == 0 {
		t.Errorf("%d bytes are read into %d that are reserved; refused: %v", read, held, ended)
	}
}

// countingReader is a long body.
type countingReader struct{ left, read int64 }

func (c *countingReader) Read(p []byte) (int, error) {
	n := min(int64(len(p)), c.left)
	if n == 0 {
		return 0, io.EOF
	}
	c.left -= n
	c.read += n
	return int(n), nil
}

// No host claims a sandbox for a request that may not reach it.
func TestNothingIsClaimedForStrangers(t *testing.T) {
	s := &shared{owner: store.Ownership{Sandbox: bothy.StatePaused}}
	a, err := OpenAuthority(t.Context(), hosts{self: "one", shared: s}, openVault{})
	if err != nil {
		t.Fatal(err)
	}
	x := NewRouter(RouterOptions{
		Hosts: hosts{self: "one", shared: s}, Authority: a, Gate: &Gate{}, Here: func(string) bool { return false }, Agents: "/mcp", Log: slog.New(slog.DiscardHandler),
		Keeper: NewKeeper(KeeperOptions{Times: Times{Lease: time.Hour}, Renewed: time.Now}),
		Port: func(r *http.Request) string {
			if strings.HasPrefix(r.Host, "8000-") {
				return aSandbox
			}
			return ""
		},
		Authenticate: func(r *http.Request) (Caller, error) { return Caller{Owner: r.Header.Get("Authorization")}, nil },
		May: func(r *http.Request, sandbox, owner string) bool {
			return sandbox == aSandbox && (owner == "owner" || owner == "" && r.Header.Get("X-Link") != "")
		},
	})
	for name, c := range map[string]struct {
		host    string
		headers map[string]string
		claimed int
	}{
		"another project's key":  {"localhost", map[string]string{"Authorization": "stranger"}, 0},
		"a port, without a link": {"8000-x.localhost", nil, 0},
		"its own key":            {"localhost", map[string]string{"Authorization": "owner"}, 1},
		"a port, with a link":    {"8000-x.localhost", map[string]string{"X-Link": "1"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s.claimed = 0
			r := httptest.NewRequest(http.MethodPost, "http://"+c.host+"/v1/sandboxes/"+aSandbox+"/exec", strings.NewReader("{}"))
			for k, v := range c.headers {
				r.Header.Set(k, v)
			}
			handled, leave := x.Route(httptest.NewRecorder(), r)
			leave()
			if handled || s.claimed != c.claimed {
				t.Errorf("handled %v, claimed %d times", handled, s.claimed)
			}
		})
	}
}
