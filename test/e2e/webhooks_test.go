package e2e

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/webhook"
)

// hook is a receiver of webhooks. While it is shut it answers 503.
type hook struct {
	*httptest.Server
	mu     sync.Mutex
	shut   bool
	failed int
	took   []delivery
}

type delivery struct {
	header http.Header
	body   []byte
}

func newHook(t *testing.T) *hook {
	h := &hook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.shut {
			h.failed++
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		h.took = append(h.took, delivery{r.Header, b})
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) setShut(shut bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shut = shut
}

func (h *hook) failures() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

// types waits for n deliveries and returns their events' types.
func (h *hook) types(t *testing.T, n int) (types []string) {
	t.Helper()
	for end := time.Now().Add(hangs); time.Now().Before(end); {
		h.mu.Lock()
		took := slices.Clone(h.took)
		h.mu.Unlock()
		if len(took) >= n {
			for _, d := range took {
				var e struct{ Type string }
				if err := json.Unmarshal(d.body, &e); err != nil {
					t.Fatal(err)
				}
				types = append(types, e.Type)
			}
			return types
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("%d deliveries did not arrive within %s", n, hangs)
	return nil
}

// Events of a sandbox reach a receiver in order, signed, in both formats, and none is lost while the
// receiver or the server is unavailable.
func TestWebhooksReportTheEventsOfASandbox(t *testing.T) {
	t.Parallel()
	s := stoppedServer(t)
	s.NoPool, s.Settings = true, "webhooks: {allow: [127.0.0.1/32]}\n"
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	ours, theirs := newHook(t), newHook(t)
	h, err := s.Webhooks.CreateWebhook(ctx, bothy.WebhookCreate{URL: ours.URL})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Webhooks.TestWebhook(ctx, h.ID); err != nil || got.Error != "" {
		t.Fatalf("the test of a webhook: %+v, %v", got, err)
	}
	lifecycle := []string{"sandbox.lifecycle.created", "sandbox.lifecycle.paused", "sandbox.lifecycle.killed"}
	if _, err := s.Do(ctx, http.MethodPost, "/events/webhooks", map[string]any{
		"name": "all", "url": theirs.URL, "enabled": true, "signatureSecret": "secret-of-ours", "events": lifecycle,
	}); err != nil {
		t.Fatal(err)
	}

	b := s.newBox(t, bothy.SandboxCreate{Metadata: map[string]string{"task": "7"}})
	if _, err := s.Snapshots.Pause(ctx, b.id, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Snapshots.Resume(ctx, b.id, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	want := []string{bothy.EventWebhookTest, bothy.EventSandboxCreated, bothy.EventSnapshotCreated, bothy.EventSandboxPaused, bothy.EventSandboxResumed}
	if got := ours.types(t, len(want)); !slices.Equal(got, want) {
		t.Errorf("the receiver got %v, want %v", got, want)
	}
	for _, d := range ours.took {
		if d.header.Get("Webhook-Signature") != webhook.Sign(h.Secret, d.header.Get("Webhook-Id"), d.header.Get("Webhook-Timestamp"), d.body) {
			t.Errorf("%s is signed %q", d.body, d.header.Get("Webhook-Signature"))
		}
	}

	// The receiver becomes unavailable, and the server is killed and restarted.
	ours.setShut(true)
	if err := s.Sandboxes.Terminate(ctx, b.id); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the webhook to fail", func() bool {
		now, err := s.Webhooks.Webhook(ctx, h.ID)
		return err == nil && ours.failures() > 0 && strings.Contains(now.LastError, "503")
	})
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	ours.setShut(false)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	want = append(want, bothy.EventSandboxEnded)
	if got := ours.types(t, len(want)); !slices.Equal(got, want) {
		t.Errorf("the receiver got %v, want %v", got, want)
	}

	if got := theirs.types(t, 3); !slices.Equal(got, lifecycle) {
		t.Errorf("the receiver of E2B's format got %v", got)
	}
	for _, d := range theirs.took {
		sum := sha256.Sum256(append([]byte("secret-of-ours"), d.body...))
		if got := d.header.Get("E2b-Signature"); got != base64.RawStdEncoding.EncodeToString(sum[:]) {
			t.Errorf("%s is signed %q", d.body, got)
		}
		var e struct {
			SandboxID string `json:"sandboxId"`
			Snake     string `json:"sandbox_id"`
			EventData struct {
				Metadata map[string]string `json:"sandbox_metadata"`
			} `json:"eventData"`
		}
		if err := json.Unmarshal(d.body, &e); err != nil || e.SandboxID != b.id || e.Snake != b.id || e.EventData.Metadata["task"] != "7" {
			t.Errorf("%s, %v", d.body, err)
		}
	}
	var listed []struct{ Type string }
	text, err := s.Do(ctx, http.MethodGet, "/events/sandboxes/"+b.id+"?limit=2", nil)
	if err == nil {
		err = json.Unmarshal(text, &listed)
	}
	if err != nil || len(listed) != 2 || listed[0].Type != "sandbox.lifecycle.killed" {
		t.Errorf("E2B's list of events: %s, %v", text, err)
	}
}
