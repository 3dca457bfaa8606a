package e2b

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"
)

func formOf(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("--b\r\n" + p + "\r\n")
	}
	return b.String() + "--b--\r\n"
}

// TestUnwrapForm checks that a form with one file is sent as the file, and that other forms do not change.
func TestUnwrapForm(t *testing.T) {
	const head = `Content-Disposition: form-data; name="file"; filename="/tmp/a b"` + "\r\n\r\n"
	one := formOf(head + "con\r\ntent")
	for what, c := range map[string]struct {
		method, url, kind, body string
		path, want              string // path is "" where the form stays
	}{
		"one file":          {"POST", "/files", "multipart/form-data; boundary=b", one, "/tmp/a b", "con\r\ntent"},
		"at a path":         {"POST", "/files?path=%2Fc", "multipart/form-data; boundary=b", one, "/c", "con\r\ntent"},
		"an empty file":     {"POST", "/files", "multipart/form-data; boundary=b", formOf(head), "/tmp/a b", ""},
		"two files":         {"POST", "/files", "multipart/form-data; boundary=b", formOf(head+"1", head+"2"), "", ""},
		"another field":     {"POST", "/files", "multipart/form-data; boundary=b", formOf("Content-Disposition: form-data; name=\"x\"\r\n\r\n1"), "", ""},
		"a damaged form":    {"POST", "/files", "multipart/form-data; boundary=b", one[:len(one)-12], "", ""},
		"another boundary":  {"POST", "/files", "multipart/form-data; boundary=c", one, "", ""},
		"no form":           {"POST", "/files", "application/octet-stream", one, "", ""},
		"another call":      {"POST", "/x", "multipart/form-data; boundary=b", one, "", ""},
		"a large form":      {"POST", "/files", "multipart/form-data; boundary=b", formOf(head + strings.Repeat("x", maxForm)), "", ""},
		"with no file name": {"POST", "/files", "multipart/form-data; boundary=b", formOf("Content-Disposition: form-data; name=\"file\"\r\n\r\n1"), "", ""},
	} {
		r := httptest.NewRequest(c.method, c.url, strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.kind)
		if err := unwrapForm(r); err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		got, _ := io.ReadAll(r.Body)
		if c.path == "" {
			if string(got) != c.body || r.Header.Get("Content-Type") != c.kind || r.URL.Query().Get("path") != "" {
				t.Errorf("%s was changed", what)
			}
			continue
		}
		if string(got) != c.want || r.URL.Query().Get("path") != c.path || r.ContentLength != int64(len(c.want)) ||
			r.Header.Get("Content-Type") != "application/octet-stream" {
			t.Errorf("%s: %q at %q", what, got, r.URL.Query().Get("path"))
		}
	}
}
