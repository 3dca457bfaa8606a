package agents

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/agents/agentstest"
	"github.com/bothy-dev/bothy/store"
)

// No answer of a service is read without a limit, and none is decompressed.
func TestAnswersHaveLimits(t *testing.T) {
	const offered = 1 << 30
	endless := func(start, more string) func(http.ResponseWriter, *atomic.Int64) {
		return func(w http.ResponseWriter, sent *atomic.Int64) {
			_, _ = io.WriteString(w, start)
			piece := bytes.Repeat([]byte(more), 64<<10/len(more))
			for sent.Load() < offered {
				n, err := w.Write(piece)
				if sent.Add(int64(n)); err != nil {
					return
				}
			}
		}
	}
	for name, c := range map[string]struct {
		path  string
		write func(http.ResponseWriter, *atomic.Int64)
	}{
		"a session":             {"/v1/sessions/ID", endless(`{"id":"`, "x")},
		"a session of values":   {"/v1/sessions/ID", endless(`{"resources":[0`, ",{}")},
		"a page":                {"/v1/sessions/ID/events", endless(`{"data":[{"id":"`, "x")},
		"a page of events":      {"/v1/sessions/ID/events", endless(`{"data":[{}`, ",{}")},
		"a page of keys":        {"/v1/sessions/ID/events", endless(`{"`, "x")},
		"an event":              {"/v1/sessions/ID/events/stream", endless("event: agent.tool_use\ndata: ", "x")},
		"an event of lines":     {"/v1/sessions/ID/events/stream", endless("event: agent.tool_use\n", "data: x\n")},
		"work":                  {"/work/poll", endless(`{"id":"`, "x")},
		"an error of the queue": {"/work/poll", func(w http.ResponseWriter, n *atomic.Int64) { w.WriteHeader(500); endless(`{"error":"`, "x")(w, n) }},
		"an error of a session": {"/v1/sessions/ID", func(w http.ResponseWriter, n *atomic.Int64) { w.WriteHeader(403); endless(`{"error":"`, "x")(w, n) }},
		"a compressed session":  {"/v1/sessions/ID", compressed},
		"a compressed page":     {"/v1/sessions/ID/events", compressed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := agentstest.New("env_1", testKey, time.Minute)
			x := q.Session(nil)
			var sent atomic.Int64
			took := make(chan int64, 100)
			q.Instead(func(w http.ResponseWriter, r *http.Request) bool {
				if a := r.Header.Get("Accept-Encoding"); a != "identity" {
					t.Errorf("%s: compressed answers are asked for: %q", r.URL.Path, a)
				}
				if !strings.HasSuffix(r.URL.Path, strings.ReplaceAll(c.path, "ID", x.ID)) || r.Method != http.MethodGet {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				if strings.HasSuffix(c.path, "stream") {
					w.Header().Set("Content-Type", "text/event-stream")
				}
				sent.Store(0)
				c.write(w, &sent)
				select {
				case took <- sent.Load():
				default:
				}
				return true
			})
			working(t, q, newTestService(t, newStore()))
			x.Start("bash", map[string]any{"command": "true"})
			if n := <-took; n > offered/4 {
				t.Errorf("%d bytes were read", n)
			}
		})
	}
}

// compressed is an answer that is a thousand times larger than what is sent.
func compressed(w http.ResponseWriter, _ *atomic.Int64) {
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	_, _ = io.Copy(z, io.MultiReader(strings.NewReader(`{"id":"`), zeros(64<<20)))
	_ = z.Close()
}

// What the SDK gets of events is made afresh, and has just what the worker needs.
func TestTrim(t *testing.T) {
	for raw, want := range map[string]string{
		`{"id":"a","type":"agent.tool_use","name":"bash","input":{"command":"<x>"},"content":[1],"more":{}}`: `{"id":"a","input":{"command":"\u003cx\u003e"},"name":"bash","type":"agent.tool_use"}`,
		`{"id":"a","type":"user.tool_result","tool_use_id":"b","content":[{"text":"long"}],"input":1}`:       `{"id":"a","tool_use_id":"b","type":"user.tool_result"}`,
		`{"id":"a","type":"agent.tool_use","input":{"x":1,"x":2}}`:                                           "!twice",
		`{"id":"a","type":"x","Type":"agent.tool_use"}`:                                                      "!twice",
		`{"id":"` + strings.Repeat("x", 300) + `"}`:                                                          "!302 bytes",
		`[]`: "!cannot unmarshal",
	} {
		got, _, _, err := trim([]byte(raw))
		if part, bad := strings.CutPrefix(want, "!"); bad != (err != nil) || !bad && string(got) != want || bad && !strings.Contains(err.Error(), part) {
			t.Errorf("%.80s: %s, %v; want %s", raw, got, err, want)
		}
	}
	a := accountOf(t.Context())
	for raw, want := range map[string]string{
		`{"data":[{"id":"a","content":1},{"id":"b"}],"has_more":true,"next_page":"2"}`: `{"data":[{"id":"a"},{"id":"b"}],"next_page":"2"}`,
		`{"data":[],"next_page":null}`:                          `{"data":[],"next_page":null}`,
		`{"data":[],"data":[{"id":"a"}]}`:                       "!twice",
		`{"data":[],"DATA":[{"id":"a"}]}`:                       "!twice",
		`{"data":{}}`:                                           "!there is no",
		`{"data":[` + strings.Repeat("{},", maxEvents) + `{}]}`: "!too many events",
		`{"next_page":"` + strings.Repeat("x", 5000) + `"}`:     "!next page",
	} {
		got, _, err := trimPage(strings.NewReader(raw), a)
		if part, bad := strings.CutPrefix(want, "!"); bad != (err != nil) || !bad && string(got) != want || bad && !strings.Contains(err.Error(), part) {
			t.Errorf("%.80s: %s, %v; want %s", raw, got, err, want)
		}
	}
}

// Events that are kept until the work ends count, for each piece of work and for each project.
func TestEventsAreCounted(t *testing.T) {
	u := newUsage()
	one := &account{use: u, project: "p"}
	for i := 0; one.keep(1<<20, fmt.Sprint(i)) == nil; i++ {
	}
	if one.ids+one.pages > pieceMemory || u.total == 0 {
		t.Errorf("%d and %d bytes are kept", one.ids, one.pages)
	}
	one.forgetPages()
	for range 1_000_000 { // the same calls again and again
		if err := one.keep(0, "0", "1", "2", ""); err != nil {
			t.Fatal(err)
		}
	}
	var others []*account
	for full := false; !full; {
		x := &account{use: u, project: "p"}
		others = append(others, x)
		full = x.keep(pieceMemory) != nil
	}
	if u.held["p"] > projectMemory {
		t.Errorf("the project keeps %d bytes", u.held["p"])
	}
	if err := (&account{use: u, project: "q"}).keep(pieceMemory); err != nil {
		t.Errorf("another project: %v", err)
	}
	for _, x := range append(others, one) {
		x.close()
	}
	if len(u.held) != 1 || u.total != pieceMemory {
		t.Errorf("%v, %d bytes are left", u.held, u.total)
	}
}

// A long text in an event is cut where that keeps the document valid, and no call has one.
func TestTextsOfEventsAreCut(t *testing.T) {
	for _, text := range []string{"x", "ü", `\\`, `\"`, `\u00fc`, "€x"} {
		for shift := range 3 {
			long := strings.Repeat("y", shift) + strings.Repeat(text, maxText*2/len(text))
			doc := `{"id":"a\"b","type":"user.message","content":[{"data":"` + long + `"}],"tool_use_id":"c"}` + "\n"
			b, err := io.ReadAll(&cutter{from: strings.NewReader(doc + `{"id":"d"}`)})
			if err != nil {
				t.Fatal(err)
			}
			first, second, _ := bytes.Cut(b, []byte("\n"))
			event, _, _, err := trim(first)
			if err != nil || len(b) > maxText+1024 || string(second) != `{"id":"d"}` || string(event) != `{"id":"a\"b","tool_use_id":"c","type":"user.message"}` {
				t.Fatalf("%q, %d: %d bytes, %s, %v", text, shift, len(b), event, err)
			}
		}
	}
	call := `{"id":"a","type":"agent.tool_use","name":"write","input":{"content":"` + strings.Repeat("x", maxText*2) + `"}}`
	page, _, err := trimPage(strings.NewReader(`{"data":[`+call+`]}`), accountOf(t.Context()))
	if err == nil || !strings.Contains(err.Error(), "a call has a text") {
		t.Errorf("a call that is cut: %d bytes, %v", len(page), err)
	}
}

// A stream with more events than can be kept ends the work, instead of being read again and again.
func TestTooManyEvents(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for i := 0; r.Context().Err() == nil; i++ {
			if _, err := fmt.Fprintf(w, "event: user.tool_result\ndata: {\"type\":\"user.tool_result\",\"tool_use_id\":\"%d\"}\n\n", i); err != nil {
				return
			}
		}
	}))
	defer server.Close()
	ctx, fail := context.WithCancelCause(t.Context())
	r, err := http.NewRequestWithContext(context.WithValue(ctx, accountKey{}, &account{use: newUsage(), fail: fail}), http.MethodGet, server.URL+"/v1/sessions/s/events/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&wire{next: http.DefaultTransport}).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	if why := context.Cause(ctx); why == nil || !strings.Contains(why.Error(), "too many events") || n > 64<<20 {
		t.Errorf("%d bytes, %v, the work ends with %v", n, err, why)
	}
}

// An attachment makes room for new sessions, and remembers no more than a number of them.
func TestSessionsAreLimited(t *testing.T) {
	m := newStore()
	w := &worker{o: Options{Store: m, Vault: m}, attachment: &bothy.AgentAttachment{ID: "a"}, sessions: map[string]*session{}}
	for i := range maxKept + 10 {
		s := w.session(t.Context(), fmt.Sprint("s", i))
		if s == nil || len(w.sessions) > maxKept {
			t.Fatalf("session %d: %v of %d", i, s, len(w.sessions))
		}
		s.record.SandboxID = fmt.Sprint("sb", i)
		if i < 10 {
			s.record.SandboxID = ""
		}
	}
	if s := w.session(t.Context(), "more"); s != nil {
		t.Error("there is no limit for sessions with sandboxes")
	}
	if s := w.session(t.Context(), "s500"); s == nil || s.record.SandboxID != "sb500" {
		t.Errorf("a session that is known: %v", s)
	}
}

// Results that the service never takes do not accumulate, but the one of the call at hand stays.
func TestResultsAreLimited(t *testing.T) {
	r := record{Calls: map[string]callState{"running": {Process: 1}}}
	for i := range 100 {
		id := fmt.Sprint(i)
		r.Calls[id] = callState{Done: true, Result: []block{{Type: typePDF, Data: strings.Repeat("x", 4<<20)}}}
		r.forgetResults(id)
		if !r.Calls[id].Done || len(r.Calls) > 9 {
			t.Fatalf("%d calls are kept after %d", len(r.Calls), i)
		}
	}
	if r.Calls["running"].Process != 1 {
		t.Error("a call that is running was forgotten")
	}
}

// keyring has one key, unless it is revoked.
type keyring struct {
	held    chan func(error) // gets what ends the holder
	revoked bool
}

func (k *keyring) HoldID(_ context.Context, project, id string, end func(error)) (*bothy.Caller, func(), error) {
	if k.revoked || project != "p" || id != "tok_1" {
		return nil, nil, bothy.Errorf(bothy.CodeUnauthenticated, "this API key was revoked")
	}
	k.held <- end
	return &bothy.Caller{}, func() {}, nil
}

// An attachment ends with the key that made it, also if the key was revoked while no server ran.
func TestKeyIsRevoked(t *testing.T) {
	q := agentstest.New("env_1", testKey, time.Minute)
	m := newStore()
	keys := &keyring{held: make(chan func(error), 1)}
	s := newTestService(t, m)
	s.o.Keys = keys
	ctx := bothy.WithCaller(t.Context(), &bothy.Caller{ProjectID: "p", TokenID: "tok_1", Scopes: bothy.AllScopes})
	workingAs(t, ctx, q, s)
	x := q.Session(nil)
	x.Call("bash", map[string]any{"command": "true"})
	(<-keys.held)(nil)
	q.AwaitRest(x.ID)
	check := func(s *Service) {
		t.Helper()
		a, err := s.AgentAttachment(ctx, "env_1")
		if err != nil || a.State != bothy.AgentsFailing || !strings.Contains(a.LastError, "revoked") {
			b, _ := json.Marshal(a)
			t.Errorf("%s, %v", b, err)
		}
	}
	check(s)

	next := newTestService(t, m)
	next.o.Keys = &keyring{revoked: true}
	running, stop := context.WithCancel(t.Context())
	defer stop()
	started := make(chan struct{})
	next.o.Store = &readStore{m, started}
	go func() { _ = next.Run(running) }()
	<-started
	next.changing.Lock()
	//lint:ignore SA2001 once Run has given it up, all workers have started
	next.changing.Unlock()
	check(next)
}

// readStore tells when attachments are read.
type readStore struct {
	*memoryStore
	read chan struct{}
}

func (r *readStore) Agents(ctx context.Context, project string) ([]*store.AgentAttachment, error) {
	if project == "" {
		defer close(r.read)
	}
	return r.memoryStore.Agents(ctx, project)
}
