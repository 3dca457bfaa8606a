package server

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
	"github.com/bothy-dev/bothy/config"
)

// TestLife runs a server in this process: New, Listen, Serve, Close.
func TestLife(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can open the engines")
	}
	c := config.Default()
	c.Listen, c.Templates = "127.0.0.1:0", t.TempDir()
	c.Home = filepath.Join(t.TempDir(), "home")
	if err := c.Finish(); err != nil {
		t.Fatal(err)
	}
	o := Options{Version: "in-process", Log: slog.New(slog.DiscardHandler)}
	s, err := New(t.Context(), c, o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), c, o); bothy.ErrorCode(err) != bothy.CodeConflict {
		t.Errorf("a second server of the same home: %v", err)
	}
	other := c
	other.Home = filepath.Join(t.TempDir(), "home")
	gaveUp, giveUp := context.WithCancel(t.Context())
	giveUp()
	if _, err := New(gaveUp, other, o); bothy.ErrorCode(err) != bothy.CodeConflict || !strings.Contains(err.Error(), c.Home) {
		t.Errorf("a second server of the same templates: %v", err)
	}
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	path, err := s.FirstKey(t.Context(), "")
	if err != nil || path != filepath.Join(c.Home, AdminFile) {
		t.Fatalf("the first key is in %q: %v", path, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	asks(t, s, path)
	if s.ReloadCertificate() {
		t.Error("it has a certificate without TLS")
	}
	stop()
	if err := <-served; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Serve: %v", err)
	}
	s.Close()
	again, err := New(t.Context(), c, o)
	if err != nil {
		t.Fatalf("a server after the first: %v", err)
	}
	again.Close()
}

// asks calls the server with the key in a file.
func asks(t *testing.T, s *Server, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var k client.Credentials
	if err := json.Unmarshal(b, &k); err != nil {
		t.Fatal(err)
	}
	if k.URL != s.URL() || !s.Accepts(t.Context(), k) {
		t.Errorf("%s is for %s, the server is %s", path, k.URL, s.URL())
	}
	if list, err := client.New(k.URL, k.APIKey).Templates.Templates(t.Context()); err != nil || len(list) > 0 {
		t.Errorf("templates: %v, %v", list, err)
	}
}
