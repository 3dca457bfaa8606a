package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/webhook"
)

// memory is a store, a vault and the events of projects.
type memory struct {
	mu     sync.Mutex
	hooks  map[string]*store.Webhook
	events []bothy.Event
	more   chan struct{}
}

func newMemory() *memory {
	return &memory{hooks: map[string]*store.Webhook{}, more: make(chan struct{})}
}

var errNone = bothy.Errorf(bothy.CodeNotFound, "none")

func (m *memory) PutWebhook(_ context.Context, w *store.Webhook) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := *w
	c.Secret = ""
	if old := m.hooks[w.ID]; old != nil {
		c.WebhookState = old.WebhookState
	}
	m.hooks[w.ID] = &c
	return nil
}

func (m *memory) Webhook(_ context.Context, project, id string) (*store.Webhook, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.hooks[id]; w != nil && w.ProjectID == project {
		c := *w
		return &c, nil
	}
	return nil, errNone
}

func (m *memory) Webhooks(_ context.Context, project string) (all []*store.Webhook, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.hooks {
		if project == "" || w.ProjectID == project {
			c := *w
			all = append(all, &c)
		}
	}
	return all, nil
}

func (m *memory) SetWebhookState(_ context.Context, id string, st bothy.WebhookState) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.hooks[id]; w != nil {
		w.WebhookState = st
	}
	return nil
}

func (m *memory) DeleteWebhook(_ context.Context, project, id string) error {
	if _, err := m.Webhook(context.Background(), project, id); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.hooks, id)
	return nil
}

func (m *memory) LastEvent(context.Context) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int64(len(m.events)), nil
}

func (m *memory) Seal(plain []byte, bound string) ([]byte, error) {
	return []byte(bound + "\x00" + string(plain)), nil
}

func (m *memory) Open(sealed []byte, bound string) ([]byte, error) {
	plain, ok := strings.CutPrefix(string(sealed), bound+"\x00")
	if !ok {
		return nil, errors.New("sealed for something else")
	}
	return []byte(plain), nil
}

func (m *memory) happens(project, typ string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, bothy.Event{ID: int64(len(m.events) + 1), Type: typ, ProjectID: project, SandboxID: "sbx1", Time: time.Now().UTC()})
	close(m.more)
	m.more = make(chan struct{})
}

func (m *memory) Events(ctx context.Context, f bothy.EventFilter, fn func(bothy.Event) error) error {
	caller, err := bothy.Require(ctx, bothy.ScopeSandboxesRead)
	if err != nil {
		return err
	}
	for {
		m.mu.Lock()
		events, more := slices.Clone(m.events[f.Since:]), m.more
		m.mu.Unlock()
		for _, e := range events {
			f.Since = e.ID
			if e.ProjectID == caller.ProjectID {
				if err := fn(e); err != nil {
					return err
				}
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// receiver answers requests, and keeps those that it took.
type receiver struct {
	mu     sync.Mutex
	answer func(n int) int // the status of the nth request; 0 is none at all
	asked  int
	took   []*http.Request
	bodies [][]byte
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	b, _ := io.ReadAll(req.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	status := 204
	if r.answer != nil {
		status = r.answer(r.asked)
	}
	if status == 0 {
		return nil, errors.New("nobody is there")
	}
	if status/100 == 2 {
		r.took, r.bodies = append(r.took, req), append(r.bodies, b)
	}
	return &http.Response{StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)), Body: io.NopCloser(bytes.NewReader(nil)), Request: req}, nil
}

func (r *receiver) types(t *testing.T) (types []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.bodies {
		var e bothy.Event
		if err := json.Unmarshal(b, &e); err != nil {
			t.Error(err)
		}
		types = append(types, e.Type)
	}
	return types
}

// world is a service that runs in a bubble of synctest.
type world struct {
	*testing.T
	*memory
	*receiver
	*webhook.Service
	ctx  context.Context
	stop func()
}

func in(t *testing.T, f func(*world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, memory: newMemory(), receiver: &receiver{}}
		w.ctx = as(t.Context(), "p")
		w.start()
		f(w)
		w.stop()
	})
}

func as(ctx context.Context, project string) context.Context {
	return bothy.WithCaller(ctx, &bothy.Caller{ProjectID: project, Scopes: []bothy.Scope{bothy.ScopeAdmin}})
}

// start is what a server does when it starts.
func (w *world) start() {
	w.Service = webhook.New(webhook.Options{Store: w.memory, Events: w.memory, Vault: w.memory, Log: slog.New(slog.DiscardHandler), Transport: w.receiver})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.Service.Run(ctx) }()
	w.stop = func() { cancel(); <-done }
	synctest.Wait()
}

func (w *world) create(req bothy.WebhookCreate) *bothy.Webhook {
	w.Helper()
	if req.URL == "" {
		req.URL = "https://hooks.example.org/in"
	}
	h, err := w.CreateWebhook(w.ctx, req)
	if err != nil {
		w.Fatal(err)
	}
	return h
}

func (w *world) now(id string) *bothy.Webhook {
	w.Helper()
	h, err := w.Service.Webhook(w.ctx, id)
	if err != nil {
		w.Fatal(err)
	}
	return h
}

func (w *world) wantTypes(want ...string) {
	w.Helper()
	synctest.Wait()
	if got := w.types(w.T); !slices.Equal(got, want) {
		w.Errorf("the receiver took %v, want %v", got, want)
	}
}

const created, paused, ended = bothy.EventSandboxCreated, bothy.EventSandboxPaused, bothy.EventSandboxEnded

func TestEventsOfTheProjectAreSentInOrderAndSigned(t *testing.T) {
	in(t, func(w *world) {
		w.happens("p", created) // before the webhook: not sent
		h := w.create(bothy.WebhookCreate{Events: []string{created, ended}})
		w.happens("p", created)
		w.happens("other", created)
		w.happens("p", paused)
		w.happens("p", ended)
		w.wantTypes(created, ended)
		req, body := w.took[0], w.bodies[0]
		id, at := req.Header.Get("Webhook-Id"), req.Header.Get("Webhook-Timestamp")
		if got := req.Header.Get("Webhook-Signature"); got != webhook.Sign(h.Secret, id, at, body) || !strings.HasPrefix(got, "v1,") {
			t.Errorf("signed %q", got)
		}
		if id == w.took[1].Header.Get("Webhook-Id") {
			t.Error("two events have one id")
		}
		if got := w.now(h.ID); got.Secret != "" || got.DeliveredAt == nil || got.LastEventID != 5 {
			t.Errorf("it is shown as %+v", got)
		}
	})
}

// The example of the specification Standard Webhooks.
func TestSignature(t *testing.T) {
	got := webhook.Sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("signed %s, want %s", got, want)
	}
}

func TestAReceiverThatIsAwayGetsAllLater(t *testing.T) {
	in(t, func(w *world) {
		w.answer = func(int) int { return 0 }
		h := w.create(bothy.WebhookCreate{})
		w.happens("p", created)
		w.happens("p", ended)
		time.Sleep(time.Hour)
		synctest.Wait()
		w.wantTypes()
		if got := w.now(h.ID); got.FailingSince == nil || got.NextAttemptAt == nil || !strings.Contains(got.LastError, "nobody is there") {
			t.Errorf("it is shown as %+v", got)
		}
		if w.asked < 4 || w.asked > 10 {
			t.Errorf("it was tried %d times in an hour", w.asked)
		}
		// First the server is restarted, then the receiver.
		w.stop()
		w.start()
		w.receiver.mu.Lock()
		w.answer = nil
		w.receiver.mu.Unlock()
		time.Sleep(2 * time.Hour)
		w.wantTypes(created, ended)
		if got := w.now(h.ID); got.FailingSince != nil || got.NextAttemptAt != nil || got.LastError != "" {
			t.Errorf("it is shown as %+v", got)
		}
	})
}

func TestOneThatFailsForADayIsDisabledAndLosesNothing(t *testing.T) {
	in(t, func(w *world) {
		w.answer = func(int) int { return 503 }
		h := w.create(bothy.WebhookCreate{})
		w.happens("p", created)
		time.Sleep(26 * time.Hour)
		got := w.now(h.ID)
		if got.Enabled || !strings.Contains(got.DisabledReason, "503") {
			t.Fatalf("it is shown as %+v", got)
		}
		w.happens("p", paused)
		w.receiver.mu.Lock()
		w.answer = nil
		w.receiver.mu.Unlock()
		time.Sleep(time.Hour)
		w.wantTypes()
		if _, err := w.UpdateWebhook(w.ctx, h.ID, bothy.WebhookUpdate{Enabled: new(true)}); err != nil {
			t.Fatal(err)
		}
		w.wantTypes(created, paused)
		if got := w.now(h.ID); got.DisabledReason != "" || !got.Enabled {
			t.Errorf("it is shown as %+v", got)
		}
	})
}

func TestAnEventThatIsRefusedHoldsUpNobody(t *testing.T) {
	in(t, func(w *world) {
		w.answer = func(n int) int {
			if n <= 3 {
				return 422
			}
			return 200
		}
		h := w.create(bothy.WebhookCreate{})
		w.happens("p", created)
		w.happens("p", ended)
		time.Sleep(5 * time.Minute)
		w.wantTypes(ended)
		if got := w.now(h.ID); got.Refused != 1 || !got.Enabled {
			t.Errorf("it is shown as %+v", got)
		}
	})
}

func TestAReceiverThatIsGoneIsLeftAlone(t *testing.T) {
	in(t, func(w *world) {
		w.answer = func(int) int { return 410 }
		h := w.create(bothy.WebhookCreate{})
		w.happens("p", created)
		w.happens("p", ended)
		time.Sleep(time.Hour)
		if got := w.now(h.ID); got.Enabled || w.asked != 1 {
			t.Errorf("it is shown as %+v, and was tried %d times", got, w.asked)
		}
	})
}

func TestChangesCountAtOnce(t *testing.T) {
	in(t, func(w *world) {
		w.answer = func(int) int { return 500 }
		h := w.create(bothy.WebhookCreate{})
		w.happens("p", created)
		time.Sleep(time.Minute)
		w.receiver.mu.Lock()
		w.answer = nil
		w.receiver.mu.Unlock()
		url := "https://other.example.org/"
		if _, err := w.UpdateWebhook(w.ctx, h.ID, bothy.WebhookUpdate{URL: &url}); err != nil {
			t.Fatal(err)
		}
		w.wantTypes(created)
		if got := w.took[0].URL.String(); got != url {
			t.Errorf("it was sent to %s", got)
		}
		if err := w.Service.DeleteWebhook(w.ctx, h.ID); err != nil {
			t.Fatal(err)
		}
		w.happens("p", ended)
		w.wantTypes(created)
		if _, err := w.UpdateWebhook(w.ctx, h.ID, bothy.WebhookUpdate{}); bothy.ErrorCode(err) != bothy.CodeNotFound {
			t.Errorf("changing one that was deleted: %v", err)
		}
	})
}

// A webhook for events of a type that only an earlier version had can still be changed.
func TestAWebhookForFormerEventsCanBeChanged(t *testing.T) {
	in(t, func(w *world) {
		h := w.create(bothy.WebhookCreate{Events: []string{ended}})
		row, err := w.memory.Webhook(w.ctx, "p", h.ID)
		if err != nil {
			t.Fatal(err)
		}
		row.Events = []string{"snapshot.damaged"}
		if err := w.memory.PutWebhook(w.ctx, row); err != nil {
			t.Fatal(err)
		}
		got, err := w.UpdateWebhook(w.ctx, h.ID, bothy.WebhookUpdate{Enabled: new(false)})
		if err != nil || got.Enabled || !slices.Equal(got.Events, row.Events) {
			t.Errorf("disabled: %+v, %v", got, err)
		}
		if _, err := w.UpdateWebhook(w.ctx, h.ID, bothy.WebhookUpdate{Events: &row.Events}); bothy.ErrorCode(err) != bothy.CodeInvalid {
			t.Errorf("given such events: %v", err)
		}
	})
}

func TestATestTellsWhatTheReceiverAnswered(t *testing.T) {
	in(t, func(w *world) {
		h := w.create(bothy.WebhookCreate{Events: []string{ended}})
		got, err := w.TestWebhook(w.ctx, h.ID)
		if err != nil || got.Status != 204 || got.Error != "" {
			t.Errorf("tested: %+v, %v", got, err)
		}
		w.wantTypes(bothy.EventWebhookTest)
		w.answer = func(int) int { return 404 }
		if got, err = w.TestWebhook(w.ctx, h.ID); err != nil || got.Status != 404 || !strings.Contains(got.Error, "404") {
			t.Errorf("tested: %+v, %v", got, err)
		}
		if now := w.now(h.ID); now.FailingSince != nil {
			t.Error("a test counts as a delivery")
		}
	})
}

func TestAProjectSeesOnlyItsOwn(t *testing.T) {
	in(t, func(w *world) {
		h := w.create(bothy.WebhookCreate{})
		other := as(t.Context(), "other")
		if list, err := w.Service.Webhooks(other); err != nil || len(list) != 0 {
			t.Errorf("another project lists %v, %v", list, err)
		}
		_, err := w.Service.Webhook(other, h.ID)
		_, err2 := w.UpdateWebhook(other, h.ID, bothy.WebhookUpdate{})
		_, err3 := w.TestWebhook(other, h.ID)
		for _, err := range []error{err, err2, err3, w.Service.DeleteWebhook(other, h.ID)} {
			if bothy.ErrorCode(err) != bothy.CodeNotFound {
				t.Errorf("another project: %v", err)
			}
		}
		reader := bothy.WithCaller(t.Context(), &bothy.Caller{ProjectID: "p", Scopes: []bothy.Scope{bothy.ScopeSandboxesWrite}})
		if _, err := w.CreateWebhook(reader, bothy.WebhookCreate{URL: "https://a.example.org"}); bothy.ErrorCode(err) != bothy.CodeForbidden {
			t.Errorf("a key without admin: %v", err)
		}
	})
}

func TestWhatCannotBeAWebhook(t *testing.T) {
	in(t, func(w *world) {
		const good = "https://a.example.org"
		for _, req := range []bothy.WebhookCreate{
			{}, {URL: "a.example.org"}, {URL: "ftp://a.example.org"}, {URL: "https://"}, {URL: "https://me:pw@a.example.org"},
			{URL: "https://a.example.org/#x"}, {URL: "https://[fe80::1%25eth0]/"}, {URL: good + "/" + strings.Repeat("x", 2000)},
			{URL: good, Events: []string{"sandbox.exploded"}}, {URL: good, Format: "smoke"}, {URL: good, Secret: "short"},
			{URL: good, Name: strings.Repeat("x", 101)},
		} {
			if _, err := w.CreateWebhook(w.ctx, req); bothy.ErrorCode(err) != bothy.CodeInvalid {
				t.Errorf("%+v: %v", req, err)
			}
		}
		for range 20 {
			w.create(bothy.WebhookCreate{})
		}
		if _, err := w.CreateWebhook(w.ctx, bothy.WebhookCreate{URL: good}); bothy.ErrorCode(err) != bothy.CodeQuota {
			t.Errorf("the 21st: %v", err)
		}
	})
}
