package console

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
)

func packed(text string) *fstest.MapFile {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	w.Close()
	return &fstest.MapFile{Data: b.Bytes()}
}

func get(h http.Handler, path, encoding string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	r.Header.Set("Accept-Encoding", encoding)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestPagesAndAssets(t *testing.T) {
	h := handler(fstest.MapFS{"index.html.gz": packed("<p>page"), "assets/a-1.js.gz": packed("run()"), "secret.gz": packed("x")})
	for _, path := range []string{"/console/", "/console/sandboxes/sbx1", "/console/secret", "/console/assets/../secret"} {
		w := get(h, path, "")
		if w.Code != 200 || w.Body.String() != "<p>page" || w.Header().Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: %d %q %v", path, w.Code, w.Body, w.Header())
		}
		csp := w.Header().Get("Content-Security-Policy")
		if !strings.Contains(csp, "script-src 'self';") || !strings.Contains(csp, "frame-ancestors 'none'") {
			t.Errorf("%s: policy %q", path, csp)
		}
	}
	w := get(h, "/console/assets/a-1.js", "br, gzip")
	if w.Header().Get("Content-Encoding") != "gzip" || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") ||
		!strings.Contains(w.Header().Get("Content-Type"), "javascript") {
		t.Errorf("the asset: %v", w.Header())
	}
	if w := get(h, "/console/assets/b.js", ""); w.Code != 404 {
		t.Errorf("an asset that is not there: %d", w.Code)
	}
}

func TestWithoutTheBuiltFiles(t *testing.T) {
	w := get(handler(fstest.MapFS{}), "/console/", "")
	if w.Code != 200 || !strings.Contains(w.Body.String(), "make build") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestFrontLeadsBrowsersOnly(t *testing.T) {
	h := Front(http.NotFoundHandler())
	r := httptest.NewRequest("GET", "/", nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 404 {
		t.Errorf("a program got %d", w.Code)
	}
	r.Header.Set("Accept", "text/html,*/*")
	w = httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 303 || w.Header().Get("Location") != Path {
		t.Errorf("a browser got %d %v", w.Code, w.Header())
	}
}
