package server

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/config"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/store/sqlite"
	"github.com/bothy-dev/bothy/webhook"
)

// A key that is missing or wrong is noticed at the start, not when a sandbox resumes.
func TestTheKeyOfTheSecretsBelongsToTheDatabase(t *testing.T) {
	home := t.TempDir()
	db, err := sqlite.Open(t.Context(), filepath.Join(home, "bothy.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	open := func() (*Server, error) {
		s := &Server{config: config.Config{Home: home}, log: slog.New(slog.DiscardHandler), store: db}
		s.membership = alone{Server: s}
		return s, s.openVault(t.Context())
	}
	s, err := open()
	if err != nil || s.closedSecrets != "" {
		t.Fatalf("the first start: %v, %q", err, s.closedSecrets)
	}
	sb := &store.Sandbox{Sandbox: bothy.Sandbox{ID: "sbx", ProjectID: "p", State: bothy.StatePaused}}
	sb.SealedSecrets, _ = s.vault.Seal([]byte("a"), sb.ID)
	w := &store.Webhook{Webhook: bothy.Webhook{ID: "whk", ProjectID: "p"}}
	w.SealedSecret, _ = s.vault.Seal([]byte("b"), webhook.SealedFor(w))
	if err := db.PutSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	if err := db.PutWebhook(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if s, err := open(); err != nil || s.closedSecrets != "" {
		t.Errorf("with its key: %v, %q", err, s.closedSecrets)
	}
	path := filepath.Join(home, "secrets.key")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := open(); bothy.ErrorCode(err) != bothy.CodeConflict || !strings.Contains(bothy.AsError(err).Hint, "backup") {
		t.Errorf("without its key: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a new key was made beside the secrets of the old one")
	}
	if err := os.WriteFile(path, bytes.Repeat([]byte{7}, 32), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := open(); err != nil || !strings.Contains(s.closedSecrets, "2 of 2") {
		t.Errorf("with another key: %v, %q", err, s.closedSecrets)
	}
}
