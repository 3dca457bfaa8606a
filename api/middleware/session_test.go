package middleware

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// TestSessionCookie checks the cookie of a login: scripts cannot read it, other
// sites cannot send it, and over TLS no sibling of this host can set it.
func TestSessionCookie(t *testing.T) {
	for _, secure := range []bool{false, true} {
		r := httptest.NewRequest("POST", "/v1/login", nil)
		if secure {
			r = r.WithContext(bothy.WithOrigin(r.Context(), bothy.Origin{Scheme: "https"}))
		}
		w := httptest.NewRecorder()
		expires := time.Unix(2_000_000_000, 0)
		SetSessionCookie(w, r, "value", expires)
		cookies := w.Result().Cookies()
		if len(cookies) != 1 {
			t.Fatalf("there are %d cookies", len(cookies))
		}
		c := cookies[0]
		want := map[bool]string{false: SessionCookie, true: SessionHostCookie}[secure]
		if c.Name != want || c.Value != "value" || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure != secure ||
			c.Path != "/" || c.Domain != "" || !c.Expires.Equal(expires) {
			t.Errorf("over TLS %v the cookie is %+v", secure, c)
		}
		// The name for plain HTTP, which siblings could set, counts for nothing over TLS.
		r.AddCookie(&http.Cookie{Name: SessionCookie, Value: "plain"})
		r.AddCookie(&http.Cookie{Name: SessionHostCookie, Value: "host"})
		if got := SessionSecrets(r); len(got) != 1 || got[0] != map[bool]string{false: "plain", true: "host"}[secure] {
			t.Errorf("over TLS %v the secrets are %q", secure, got)
		}
	}
}

func TestRequestsOfOtherPagesAreRefused(t *testing.T) {
	own := map[string]string{"X-Bothy-Console": "1"}
	for name, c := range map[string]struct {
		header map[string]string
		ok     bool
	}{
		"the console":             {own, true},
		"with all signs":          {map[string]string{"X-Bothy-Console": "1", "Origin": "http://example.com", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "empty"}, true},
		"a form":                  {nil, false},
		"another origin":          {map[string]string{"X-Bothy-Console": "1", "Origin": "http://evil.test"}, false},
		"another scheme":          {map[string]string{"X-Bothy-Console": "1", "Origin": "https://example.com"}, false},
		"another port":            {map[string]string{"X-Bothy-Console": "1", "Origin": "http://example.com:81"}, false},
		"no origin to speak of":   {map[string]string{"X-Bothy-Console": "1", "Origin": "null"}, false},
		"a sibling":               {map[string]string{"X-Bothy-Console": "1", "Sec-Fetch-Site": "same-site"}, false},
		"the address bar":         {map[string]string{"X-Bothy-Console": "1", "Sec-Fetch-Site": "none"}, false},
		"a frame":                 {map[string]string{"X-Bothy-Console": "1", "Sec-Fetch-Dest": "iframe"}, false},
		"a terminal":              {map[string]string{"Upgrade": "websocket", "Origin": "http://example.com"}, true},
		"a terminal of no origin": {map[string]string{"Upgrade": "websocket"}, false},
		"another's terminal":      {map[string]string{"Upgrade": "websocket", "Origin": "http://evil.test"}, false},
	} {
		r := httptest.NewRequest("POST", "/v1/sandboxes", nil)
		for key, value := range c.header {
			r.Header.Set(key, value)
		}
		err := FromOwnPage(r)
		if (err == nil) != c.ok || err != nil && (bothy.ErrorCode(err) != bothy.CodeForbidden || bothy.AsError(err).Hint == "") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
