package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
)

// raw sends a whole request literally before it reads the answer, as many clients do.
func (f *fixture) raw(head string, body io.Reader) *http.Response {
	f.Helper()
	conn, err := net.Dial("tcp", f.Addr().String())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, head); err != nil {
		f.Fatalf("the header was not taken: %v", err)
	}
	if n, err := io.Copy(conn, body); err != nil {
		f.Fatalf("the body was not taken beyond %d bytes: %v", n, err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		f.Fatalf("the answer did not come: %v", err)
	}
	return res
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// chunks writes a body in chunks.
func chunks(n int) io.Reader {
	const size = 64 << 10
	one := fmt.Sprintf("%x\r\n%s\r\n", size, strings.Repeat("x", size))
	return strings.NewReader(strings.Repeat(one, n/size) + "0\r\n\r\n")
}

// A client whose body is refused gets the reason, however large the body is: the connection is not cut
// while the client sends.
func TestRefusedBodiesLearnWhy(t *testing.T) {
	const size = 40 << 20
	f := start(t)
	path := f.create()
	long := fmt.Sprintf("Content-Length: %d\r\n", size)
	for name, c := range map[string]struct {
		line, header, key string
		status            int
	}{
		"JSON that is too large":        {"POST " + path + "/files", long, f.key, 413},
		"chunked JSON that is":          {"POST " + path + "/files", "Transfer-Encoding: chunked\r\n", f.key, 413},
		"JSON for a command":            {"POST " + path + "/exec", long, f.key, 413},
		"without a key":                 {"POST " + path + "/files", long, "bothy_nobody", 401},
		"without a scope":               {"POST " + path + "/files", long, "key-reader", 403},
		"a file with a mode that is no": {"PUT " + path + "/files?path=x&mode=99999", long, f.key, 400},
		"a route that is not there":     {"POST /v1/nothing", long, f.key, 404},
		"a form that is none":           {"POST " + path + "/files", long + "X-Form: 1\r\n", f.key, 400},
	} {
		t.Run(name, func(t *testing.T) {
			kind := "application/json"
			if strings.Contains(c.header, "X-Form") {
				kind = "multipart/form-data"
			}
			var body io.Reader = io.LimitReader(zeros{}, size)
			if strings.Contains(c.header, "chunked") {
				body = chunks(size)
			}
			res := f.raw(c.line+" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+c.key+"\r\nContent-Type: "+kind+"\r\n"+c.header+"\r\n", body)
			text, err := io.ReadAll(res.Body)
			if err != nil || res.StatusCode != c.status || !strings.Contains(string(text), `"hint"`) {
				t.Errorf("%d %s: %v", res.StatusCode, text, err)
			}
		})
	}
}

// A client that sends Expect: 100-continue is refused before it sends the body.
func TestRefusedBodyIsNotAskedFor(t *testing.T) {
	f := start(t)
	path := f.create()
	began := time.Now()
	res := f.raw("POST "+path+"/files HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+f.key+
		"\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 50000000\r\n\r\n", strings.NewReader(""))
	if res.StatusCode != 413 || !res.Close {
		t.Errorf("%d, closed %v", res.StatusCode, res.Close)
	}
	if took := time.Since(began); took >= middleware.RefusedFor {
		t.Errorf("it took %v", took)
	}
}

// A connection whose body was refused and read can serve the next request.
func TestConnectionSurvivesARefusal(t *testing.T) {
	f := start(t)
	path := f.create()
	conn, err := net.Dial("tcp", f.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	r := bufio.NewReader(conn)
	for range 2 {
		fmt.Fprintf(conn, "POST %s/files HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, f.key, 20<<20)
		if _, err := io.Copy(conn, io.LimitReader(zeros{}, 20<<20)); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode != 413 {
			t.Errorf("%d", res.StatusCode)
		}
	}
	f.ok(200, f.do("GET", path, nil))
	if code := bothy.CodeTooLarge; !strings.Contains(f.logged.String(), string(code)) {
		t.Errorf("the log does not show %s", code)
	}
}

// Clients that stop sending when they are refused get the whole answer at once, not only after the
// server's time-out.
func TestRefusalIsWholeBeforeTheBody(t *testing.T) {
	f := start(t)
	path := f.create()
	for _, line := range []string{"POST " + path + "/files", "PUT " + path + "/files?path=x&mode=99999", "PUT " + path + "/files?path=x&nothing=1", "POST /v1/nothing"} {
		began := time.Now()
		res := f.raw(line+" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+f.key+
			"\r\nContent-Type: application/json\r\nContent-Length: 50000000\r\n\r\n", io.LimitReader(zeros{}, 1000))
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode < 400 || res.ContentLength != int64(len(text)) || len(text) == 0 {
			t.Errorf("%s: %d %q, length %d: %v", line, res.StatusCode, text, res.ContentLength, err)
		}
		if took := time.Since(began); took >= middleware.RefusedFor {
			t.Errorf("%s: it took %v", line, took)
		}
	}
}
