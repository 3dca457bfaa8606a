package webhook_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/gateway"
	"github.com/bothy-dev/bothy/webhook"
)

// Whoever may make a webhook cannot use it to look around on the server's own host.
func TestTheHostIsNotReachedUnlessAllowed(t *testing.T) {
	asked := false
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { asked = true }))
	defer inside.Close()
	elsewhere := httptest.NewServer(http.RedirectHandler(inside.URL, http.StatusTemporaryRedirect))
	defer elsewhere.Close()
	try := func(url string, allow ...netip.Prefix) *bothy.WebhookTest {
		t.Helper()
		m := newMemory()
		s := webhook.New(webhook.Options{Store: m, Events: m, Vault: m, Log: slog.New(slog.DiscardHandler), Transport: gateway.Transport(allow, nil)})
		ctx := as(t.Context(), "p")
		h, err := s.CreateWebhook(ctx, bothy.WebhookCreate{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.TestWebhook(ctx, h.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(inside.URL, "http://"), ":")
	for _, url := range []string{inside.URL, "http://localhost:" + port, "http://[::ffff:127.0.0.1]:" + port, "http://0.0.0.0:" + port} {
		if got := try(url); got.Status != 0 || !strings.Contains(got.Error, "forbidden range") || asked {
			t.Errorf("%s: %+v, reached: %v", url, got, asked)
		}
	}
	loopback := netip.MustParsePrefix("127.0.0.1/32")
	if got := try(elsewhere.URL, loopback); got.Error == "" || asked {
		t.Errorf("a redirect was followed: %+v", got)
	}
	if got := try(inside.URL, loopback); got.Status != 200 || got.Error != "" || !asked {
		t.Errorf("an allowed address: %+v", got)
	}
}
