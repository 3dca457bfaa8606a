package api

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy/api/apitest"
)

// The cost of the API in addition to the command itself: without a network, and over a kept-alive
// connection.

func benchServer(b *testing.B) (*Server, string) {
	b.Helper()
	world := apitest.New()
	log := slog.New(slog.NewJSONHandler(io.Discard, nil))
	s := New(everything(world, apitest.NewTokens(), &apitest.Answers{}, log), Config{Listen: "127.0.0.1:0"})
	r := httptest.NewRequest("POST", "/v1/sandboxes", nil)
	r.Header.Set("Authorization", "Bearer "+apitest.Writer)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return s, w.Header().Get("Location") + "/exec"
}

func execRequest(path string) *http.Request {
	r := httptest.NewRequest("POST", path, strings.NewReader(`{"command":"echo hello","env":{"A":"b"},"timeout_seconds":10}`))
	r.Header.Set("Authorization", "Bearer "+apitest.Writer)
	r.Header.Set("Content-Type", "application/json")
	return r
}

func BenchmarkExecHandler(b *testing.B) {
	s, path := benchServer(b)
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, execRequest(path))
		if w.Code != http.StatusOK {
			b.Fatal(w.Body)
		}
	}
}

func BenchmarkExecOverHTTP(b *testing.B) {
	s, path := benchServer(b)
	if err := s.Listen(); err != nil {
		b.Fatal(err)
	}
	go func() { _ = s.Serve() }()
	defer s.Close()
	for b.Loop() {
		r := execRequest(path)
		r.RequestURI, r.URL.Scheme, r.URL.Host, r.Host = "", "http", s.Addr().String(), ""
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			b.Fatal(res.Status)
		}
	}
}

func BenchmarkDocument(b *testing.B) {
	for b.Loop() {
		s := New(everything(apitest.New(), apitest.NewTokens(), nil, nil), Config{})
		if _, _, err := s.registry.Document(); err != nil {
			b.Fatal(err)
		}
	}
}
