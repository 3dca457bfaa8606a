package agents

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/agents/agentstest"
	"github.com/bothy-dev/bothy/internal/repack"
	"github.com/bothy-dev/bothy/store"
)

// memoryStore is a Store, and a Vault that shows whether it was used.
type memoryStore struct {
	mu       sync.Mutex
	agents   map[string]*store.AgentAttachment
	sessions map[string][]byte
}

func newStore() *memoryStore {
	return &memoryStore{agents: map[string]*store.AgentAttachment{}, sessions: map[string][]byte{}}
}

func (m *memoryStore) PutAgents(_ context.Context, a *store.AgentAttachment) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	kept := *a
	m.agents[a.ID] = &kept
	return nil
}

func (m *memoryStore) Agents(_ context.Context, project string) (all []*store.AgentAttachment, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.agents {
		if project == "" || a.ProjectID == project {
			kept := *a
			all = append(all, &kept)
		}
	}
	return all, nil
}

func (m *memoryStore) DeleteAgents(_ context.Context, _, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.agents, id)
	return nil
}

func (m *memoryStore) PutAgentSession(_ context.Context, _, session string, record []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions[session] = record
	return nil
}

func (m *memoryStore) AgentSessions(context.Context, string) (map[string][]byte, error) {
	return map[string][]byte{}, nil
}

func (m *memoryStore) DeleteAgentSession(_ context.Context, _, session string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sessions, session)
	return nil
}

func (m *memoryStore) Seal(plain []byte, bound string) ([]byte, error) {
	return []byte(bound + "|" + base64.StdEncoding.EncodeToString(plain)), nil
}

func (m *memoryStore) Open(sealed []byte, bound string) ([]byte, error) {
	plain, ok := strings.CutPrefix(string(sealed), bound+"|")
	if !ok {
		return nil, errors.New("sealed for something else")
	}
	return base64.StdEncoding.DecodeString(plain)
}

// noSandboxes is a service without room for sandboxes.
type noSandboxes struct{ Sandboxes }

func (noSandboxes) List(context.Context, bothy.SandboxFilter) (bothy.Page[*bothy.Sandbox], error) {
	return bothy.Page[*bothy.Sandbox]{}, nil
}

func (noSandboxes) CheckCreate(_ context.Context, req bothy.SandboxCreate) error {
	if req.Template == "missing" {
		return bothy.Errorf(bothy.CodeTemplateNotFound, "there is no template %q", req.Template)
	}
	return nil
}

func (noSandboxes) Create(_ context.Context, req bothy.SandboxCreate) (*bothy.Sandbox, error) {
	return nil, bothy.Errorf(bothy.CodeBudget, "the budget is used up; %d secrets, %s", len(req.Secrets), req.Secrets[0].Value).WithHint("Raise it.")
}

func asAdmin(t *testing.T, project string) context.Context {
	return bothy.WithCaller(t.Context(), &bothy.Caller{ProjectID: project, Scopes: bothy.AllScopes})
}

func newTestService(t *testing.T, m *memoryStore) *Service {
	return New(Options{Store: m, Vault: m, Sandboxes: noSandboxes{}, Repack: repack.Here, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
}

const testKey = "key-of-the-environment"

func TestAttach(t *testing.T) {
	m := newStore()
	s := newTestService(t, m)
	ctx := asAdmin(t, "p")
	for name, req := range map[string]bothy.AgentAttach{
		"no environment":       {Key: testKey},
		"a path":               {Environment: "../x", Key: testKey},
		"no key":               {Environment: "env_1"},
		"a key with a line":    {Environment: "env_1", Key: testKey + "\n"},
		"http":                 {Environment: "env_1", Key: testKey, URL: "http://agents.example.org"},
		"a user":               {Environment: "env_1", Key: testKey, URL: "https://me:pw@agents.example.org"},
		"a tool without one":   {Environment: "env_1", Key: testKey, Tools: []bothy.AgentTool{{Name: "x"}}},
		"a tool that there is": {Environment: "env_1", Key: testKey, Tools: []bothy.AgentTool{{Name: "bash", Command: "x"}}},
		"a tool twice":         {Environment: "env_1", Key: testKey, Tools: []bothy.AgentTool{{Name: "x", Command: "x"}, {Name: "x", Command: "y"}}},
		"a name":               {Environment: "env_1", Key: testKey, Sandbox: &bothy.SandboxCreate{Name: "x"}},
		"our label":            {Environment: "env_1", Key: testKey, Sandbox: &bothy.SandboxCreate{Metadata: map[string]string{LabelSession: "x"}}},
		"many sessions":        {Environment: "env_1", Key: testKey, MaxSessions: 101},
	} {
		if _, err := s.AttachAgents(ctx, req); bothy.ErrorCode(err) != bothy.CodeInvalid || strings.Contains(fmt.Sprint(err), testKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.AttachAgents(bothy.WithCaller(t.Context(), &bothy.Caller{ProjectID: "p", Scopes: []bothy.Scope{bothy.ScopeSandboxesWrite}}), bothy.AgentAttach{}); bothy.ErrorCode(err) != bothy.CodeForbidden {
		t.Error(err)
	}

	missing := bothy.AgentAttach{Environment: "env_1", Key: testKey, Sandbox: &bothy.SandboxCreate{Template: "missing"}}
	if _, err := s.AttachAgents(ctx, missing); bothy.ErrorCode(err) != bothy.CodeTemplateNotFound || len(m.agents) != 0 {
		t.Errorf("a template that is not there: %v", err)
	}

	req := bothy.AgentAttach{Environment: "env_1", Key: testKey, Sandbox: &bothy.SandboxCreate{Secrets: []bothy.Secret{{Name: "A", Value: "the-value", Hosts: []string{"a.example.org"}}}}}
	a, err := s.AttachAgents(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if a.URL != bothy.AgentsURL || a.MaxSessions != defaultSessions || a.State != bothy.AgentsWaiting {
		t.Errorf("%+v", a)
	}
	shown, _ := json.Marshal(a)
	kept, _ := json.Marshal(m.agents[a.ID])
	for _, b := range [][]byte{shown, kept} {
		if strings.Contains(string(b), testKey) || strings.Contains(string(b), "the-value") {
			t.Errorf("a secret is shown: %s", b)
		}
	}
	if req.Sandbox.Secrets[0].Value != "the-value" {
		t.Error("the caller's own request was changed")
	}
	again, err := s.AttachAgents(ctx, req)
	if err != nil || again.ID != a.ID || len(m.agents) != 1 {
		t.Errorf("attached again: %+v, %v", again, err)
	}
	if _, err := s.AgentAttachment(asAdmin(t, "q"), a.ID); bothy.ErrorCode(err) != bothy.CodeNotFound {
		t.Errorf("another project's: %v", err)
	}
	if err := s.DetachAgents(asAdmin(t, "q"), a.ID); bothy.ErrorCode(err) != bothy.CodeNotFound {
		t.Errorf("another project's: %v", err)
	}
	if err := s.DetachAgents(ctx, "env_1"); err != nil || len(m.agents) != 0 {
		t.Error(err)
	}
	for i := range maxPerProject {
		req.Environment = fmt.Sprint("env_", i)
		if _, err := s.AttachAgents(ctx, req); err != nil {
			t.Fatal(err)
		}
	}
	req.Environment = "env_more"
	if _, err := s.AttachAgents(ctx, req); bothy.ErrorCode(err) != bothy.CodeQuota {
		t.Error(err)
	}
}

// If a sandbox cannot be created, the agent is told why, and the record has the reason.
func TestNoSandbox(t *testing.T) {
	q := agentstest.New("env_1", testKey, time.Minute)
	defer q.Close()
	s := newTestService(t, newStore())
	ctx := asAdmin(t, "p")
	a, err := s.AttachAgents(ctx, bothy.AgentAttach{
		Environment: "env_1", Key: testKey, URL: q.URL,
		Sandbox: &bothy.SandboxCreate{Secrets: []bothy.Secret{{Name: "A", Value: "the-value", Hosts: []string{"a.example.org"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(running) }()
	x := q.Session(nil)
	got := x.Call("bash", map[string]any{"command": "true"})
	if want := "bash: budget_exceeded: the budget is used up; 1 secrets, the-value (Raise it.)"; got.Text != want || !got.IsError {
		t.Errorf("got %+v, want %q", got, want)
	}
	for range 3 { // many at once, for the race detector
		go x.Start("read", map[string]any{"file_path": "x"})
	}
	x.Wait(x.Start("glob", map[string]any{"pattern": "x"}))
	a, err = s.AgentAttachment(ctx, a.ID)
	if err != nil || a.State != bothy.AgentsWorking || len(a.Sessions) != 1 || !strings.Contains(a.Sessions[0].LastError, "budget") {
		t.Errorf("%+v, %v", a, err)
	}
	x.End()
	q.AwaitRest(x.ID)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if f := q.Faults(); len(f) > 0 {
		t.Error(f)
	}
}

type idTool struct {
	tool
	seen chan string
}

func (i *idTool) Execute(ctx context.Context, _ json.RawMessage) ([]anthropic.BetaToolResultBlockParamContentUnion, error) {
	i.seen <- callID(ctx)
	return params(text("ok")), nil
}

// The SDK's runner tells the tracer which call it runs.
func TestCallID(t *testing.T) {
	q := agentstest.New("env_1", testKey, time.Minute)
	defer q.Close()
	asked, secret, err := attachmentOf(bothy.AgentAttach{Environment: "env_1", Key: testKey, URL: q.URL})
	if err != nil {
		t.Fatal(err)
	}
	m := newStore()
	plain, _ := json.Marshal(secret)
	a := &store.AgentAttachment{AgentAttachment: *asked}
	a.Sealed, _ = m.Seal(plain, boundTo(a.ID))
	w, err := newWorker(t.Context(), Options{Store: m, Vault: m, Log: slog.New(slog.DiscardHandler)}, newUsage(), a)
	if err != nil {
		t.Fatal(err)
	}
	x := q.Session(nil)
	one, two := x.Start("id", map[string]any{}), x.StartCustom("id", map[string]any{})
	seen := make(chan string, 2)
	r := w.client.Beta.Sessions.Events.NewToolRunner(t.Context(), x.ID, anthropic.SessionToolRunnerOptions{
		Tools: []anthropic.BetaTool{&idTool{tool{name: "id"}, seen}}, RequestOptions: credential(testKey), Logger: slog.New(slog.DiscardHandler),
	})
	defer r.Close()
	for range 2 {
		if !r.Next() {
			t.Fatal(r.Err())
		}
	}
	if got := []string{<-seen, <-seen}; got[0] != one || got[1] != two {
		t.Errorf("the calls are %q, want %q and %q", got, one, two)
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*.go", "a.go", true}, {"*.go", "d/a.go", false}, {"**/*.go", "a.go", true}, {"**/*.go", "d/e/a.go", true},
		{"d/**", "d/e/f", true}, {"d/**", "d", true}, {"d/**/f", "d/f", true}, {"d/**/f", "e/f", false}, {"**", "a/b", true},
		{"ü ?[a-c]", "ü xb", true}, {"**/**/x", "x", true}, {"a/*/c", "a/b/c", true}, {"a/*/c", "a/c", false},
	} {
		if got := matches(strings.Split(c.pattern, "/"), strings.Split(c.name, "/")); got != c.want {
			t.Errorf("%s, %s: %v", c.pattern, c.name, got)
		}
	}
	many := strings.Split(strings.TrimSuffix(strings.Repeat("**/x/", 200), "/"), "/") // would take forever by trying all
	if !matches(many, strings.Split(strings.TrimSuffix(strings.Repeat("x/", 200), "/"), "/")) || matches(many, []string{"x", "y"}) {
		t.Error("a long pattern")
	}
}

func TestLines(t *testing.T) {
	for _, c := range []struct {
		text        string
		first, last int64
		want        string // "!" for an error
	}{
		{"a\nb\nc\n", 1, 2, "a\nb"}, {"a\nb\nc\n", 3, 3, "c"}, {"a\nb\nc", 2, -1, "b\nc"}, {"a\nb\n", 2, 99, "b\n"}, {"a\n", 4, 5, "!"},
		{"a\nb\n", 0, 1, "!"}, {"a\nb\n", 2, 1, "!"}, {"a\n", 2, 0, "!"}, {"", 1, 0, ""}, {"a\n\xff\n", 2, 2, "!"}, {"a\n\xff\n", 1, 1, "a"},
		{strings.Repeat("x", 300<<10) + "\nb\n", 2, 2, "b"}, {strings.Repeat("x", 300<<10) + "\nb\n", 1, 1, "!"},
	} {
		got, err := lines(bufio.NewReader(strings.NewReader(c.text)), readInput{Path: "f", Range: []int64{c.first, c.last}})
		if err != nil != (c.want == "!") || err == nil && got[0].Text != c.want {
			t.Errorf("%.20q [%d, %d]: %v, %v", c.text, c.first, c.last, got, err)
		}
	}
}

// The end of a command is found however its output is split, and no other output is mistaken for it.
func TestTail(t *testing.T) {
	out := "noise of before\n" + begin("n") + "x\n" + end("other") + "0>\n" + end("n") + "no code" + end("n") + "12>\n"
	want := "x\n" + end("other") + "0>\n" + end("n") + "no code"
	for cut := range out {
		x := tail{nonce: "n"}
		first := x.take(bothy.ExecEvent{Data: out[:cut]})
		second := x.take(bothy.ExecEvent{Data: base64.StdEncoding.EncodeToString([]byte(out[cut:])), Encoding: "base64"})
		if first != nil || !errors.Is(second, errFull) || !x.ended || x.code != 12 || x.text() != want {
			t.Fatalf("cut at %d: %v, %v, %+v", cut, first, second, x)
		}
	}
	x := tail{nonce: "n"}
	if err := x.take(bothy.ExecEvent{Data: begin("n")}); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := x.take(bothy.ExecEvent{Data: strings.Repeat("y", 5000)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.take(bothy.ExecEvent{Data: end("n") + "0>\n"}); !errors.Is(err, errFull) {
		t.Fatal(err)
	}
	if got := x.text(); got != cutMark+"\n"+strings.Repeat("y", outputLimit) {
		t.Errorf("%d bytes, %.40q", len(got), got)
	}
	x = tail{nonce: "n"}
	if err := x.take(bothy.ExecEvent{Data: "noise of before"}); err != nil || x.text() != "" {
		t.Errorf("%q, %v", x.text(), err)
	}
	x = tail{nonce: "n"}
	if err := x.take(bothy.ExecEvent{IsFinal: true}); !errors.Is(err, errShellEnded) {
		t.Error(err)
	}
}

func TestCredential(t *testing.T) {
	for secret, want := range map[string]string{
		"": "key", "no base64!": "key", base64.RawURLEncoding.EncodeToString([]byte(`[]`)): "key",
		base64.RawURLEncoding.EncodeToString([]byte(`{"sessions_token":"t","x":1}`)): "t",
		base64.URLEncoding.EncodeToString([]byte(`{"sessions_token":"t"}`)):          "t",
	} {
		if got := (piece{secret: secret}).credential("key"); got != want {
			t.Errorf("%q: %q", secret, got)
		}
	}
}
