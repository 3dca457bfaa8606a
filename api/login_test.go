package api

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/access/session"
)

// Anyone may send a login, so the server reads only as much of it as a key has.
func TestLoginsAreSmall(t *testing.T) {
	f := start(t, func(s *setup) { s.services.Sessions = session.New(nil, time.Now) })
	page := header{"X-Bothy-Console": "1", "Authorization": ""}
	login := func(size int) string { return fmt.Sprintf(`{"key":%q}`, strings.Repeat("x", size)) }
	f.failed(bothy.CodeUnauthenticated, f.do("POST", "/console/session", login(1000), page))
	f.failed(bothy.CodeTooLarge, f.do("POST", "/console/session", login(5000), page))
	res := f.raw("POST /console/session HTTP/1.1\r\nHost: localhost\r\nX-Bothy-Console: 1\r\nTransfer-Encoding: chunked\r\n\r\n", chunks(1<<20))
	if text, _ := io.ReadAll(res.Body); res.StatusCode != 413 {
		t.Errorf("in chunks: %d %s", res.StatusCode, text)
	}
}
