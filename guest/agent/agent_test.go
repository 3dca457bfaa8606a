package agent

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/wire/guestpb"
)

// The tests share one agent: it reaps the children of the whole process.
var shared = sync.OnceValue(func() *Agent {
	me, err := user.Current()
	if err != nil {
		panic(err)
	}
	root, err := os.MkdirTemp("", "agent")
	if err != nil {
		panic(err)
	}
	a, err := New(Options{Version: "test", Root: root, User: me.Username, Cwd: root})
	if err != nil {
		panic(err)
	}
	if _, err := a.adopt(&guestpb.AdoptRequest{Key: testKey, Env: map[string]string{"OWN": "1"}}); err != nil {
		panic(err)
	}
	return a
})

const testKey = "secret"

// In an image without a shell, such as one that has a single program, a line that needs none works.
func TestLinesThatNeedNoShell(t *testing.T) {
	for line, want := range map[string][]string{
		"/bin/true": {"/bin/true"}, "  server --port=80 -v a,b@c:/d ": {"server", "--port=80", "-v", "a,b@c:/d"},
		"A=1 server": nil, "a | b": nil, "echo $HOME": nil, "a; b": nil, "echo 'x'": nil, "a\nb": nil, "cat *": nil, "cd ~": nil, "": nil,
	} {
		if got := withoutShell([]string{"sh", "-l", "-c", line}); !slices.Equal(got, want) {
			t.Errorf("%q: %q", line, got)
		}
	}
	if got := withoutShell([]string{"sh", "-l"}); got != nil {
		t.Errorf("the shell itself: %q", got)
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	a := shared()
	a.Close()
	os.RemoveAll(a.opt.Root)
	os.Exit(code)
}

// e2b makes requests as E2B's clients do: in JSON, and with their own base folder.
type e2b struct {
	*testing.T
	url string
	key string
	dir string
}

func newE2B(t *testing.T) *e2b {
	s := httptest.NewServer(shared().handler())
	t.Cleanup(s.Close)
	return &e2b{t, s.URL, testKey, t.TempDir()}
}

func (c *e2b) do(method, path, contentType string, body io.Reader, header ...string) (int, []byte) {
	c.Helper()
	req, err := http.NewRequestWithContext(c.Context(), method, c.url+path, body)
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("X-Access-Token", c.key)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		c.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		c.Fatal(err)
	}
	return res.StatusCode, b
}

// call makes a unary call.
func (c *e2b) call(method, body string, header ...string) (int, map[string]any) {
	c.Helper()
	status, b := c.do("POST", method, "application/json", strings.NewReader(body), header...)
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		c.Fatalf("%s: %q: %v", method, b, err)
	}
	return status, v
}

// stream makes a call with many answers, and returns them and the last one, which says how the stream
// ended.
func (c *e2b) stream(method, body string, header ...string) (events []map[string]any, end map[string]any) {
	c.Helper()
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
	_, b := c.do("POST", method, "application/connect+json", strings.NewReader(string(frame)+body), header...)
	for len(b) >= 5 {
		n := 5 + int(binary.BigEndian.Uint32(b[1:]))
		var v map[string]any
		if err := json.Unmarshal(b[5:n], &v); err != nil {
			c.Fatal(err)
		}
		if b[0]&2 != 0 {
			return events, v
		}
		events = append(events, v)
		b = b[n:]
	}
	c.Fatal("the stream has no end")
	return nil, nil
}

func dig(v any, path ...string) any {
	for _, p := range path {
		m, _ := v.(map[string]any)
		v = m[p]
	}
	return v
}

func TestProcessesInE2BsProtocol(t *testing.T) {
	c := newE2B(t)
	events, end := c.stream("/process.Process/Start",
		`{"process":{"cmd":"/bin/sh","args":["-c","echo $OWN$A; echo e >&2; exit 3"],"envs":{"A":"2"},"cwd":"/"},"stdin":false,"unknownField":1}`)
	if len(events) < 4 || dig(end, "error") != nil {
		t.Fatal(events, end)
	}
	if pid, _ := dig(events[0], "event", "start", "pid").(float64); pid == 0 {
		t.Errorf("first event %v", events[0])
	}
	out := base64.StdEncoding.EncodeToString([]byte("12\n"))
	if dig(events[1], "event", "data", "stdout") != out && dig(events[2], "event", "data", "stdout") != out {
		t.Errorf("output %v", events[1:3])
	}
	last := dig(events[len(events)-1], "event", "end")
	if dig(last, "exitCode") != 3.0 || dig(last, "exited") != true || dig(last, "status") != "exit status 3" {
		t.Errorf("last event %v", last)
	}
	_, end = c.stream("/process.Process/Start", `{"process":{"cmd":"sleep","args":["300"]}}`, "Connect-Timeout-Ms", "50")
	if dig(end, "error", "code") != "deadline_exceeded" {
		t.Errorf("time-out: %v", end)
	}
	if status, v := c.call("/process.Process/SendSignal", `{"process":{"pid":999999},"signal":"SIGNAL_SIGKILL"}`); status != 404 || v["code"] != "not_found" {
		t.Errorf("signal: %d %v", status, v)
	}
	_, end = c.stream("/process.Process/Start", `{"process":{"cmd":"true"}}`, "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("who:")))
	if dig(end, "error", "code") != "unauthenticated" {
		t.Errorf("unknown user: %v", end)
	}
}

func TestKeepAlive(t *testing.T) {
	c := newE2B(t)
	events, _ := c.stream("/process.Process/Start", `{"process":{"cmd":"sleep","args":["1.3"]},"tag":"quiet"}`, "Keepalive-Ping-Interval", "1")
	if len(events) != 3 || dig(events[1], "event", "keepalive") == nil {
		t.Errorf("events %v", events)
	}
}

func TestFilesInE2BsProtocol(t *testing.T) {
	c := newE2B(t)
	path := url.QueryEscape(c.dir + "/a/ü.txt")
	status, b := c.do("POST", "/files?path="+path, "application/octet-stream", strings.NewReader("hello"))
	if want := fmt.Sprintf(`[{"name":"ü.txt","type":"file","path":"%s/a/ü.txt"}]`, c.dir); status != 200 || strings.TrimSpace(string(b)) != want {
		t.Errorf("%d %s", status, b)
	}
	if status, b = c.do("GET", "/files?path="+path, "", nil); status != 200 || string(b) != "hello" {
		t.Errorf("%d %s", status, b)
	}
	if status, b = c.do("GET", "/files?path="+path, "", nil, "Range", "bytes=1-3"); status != 206 || string(b) != "ell" {
		t.Errorf("range: %d %s", status, b)
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	io.WriteString(w, "packed")
	w.Close()
	if status, _ = c.do("POST", "/files?path="+path, "application/octet-stream", &z, "Content-Encoding", "gzip"); status != 200 {
		t.Error(status)
	}
	if _, b = c.do("GET", "/files?path="+path, "", nil); string(b) != "packed" {
		t.Errorf("got %q", b)
	}
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	for _, name := range []string{"one", "two/three"} {
		part, _ := m.CreateFormFile("file", c.dir+"/"+name)
		io.WriteString(part, name)
	}
	m.Close()
	if status, b = c.do("POST", "/files", m.FormDataContentType(), &form); status != 200 || strings.Count(string(b), `"file"`) != 2 {
		t.Errorf("%d %s", status, b)
	}
	if b, err := os.ReadFile(c.dir + "/two/three"); err != nil || string(b) != "two/three" {
		t.Errorf("%q, %v", b, err)
	}
	for query, want := range map[string]int{
		"path=" + url.QueryEscape(c.dir+"/none"): 404, "path=": 400, "path=%00": 400, "path=%ff": 400,
		"path=" + url.QueryEscape(c.dir): 400, "path=/x&username=nobody-here": 401,
	} {
		status, b := c.do("GET", "/files?"+query, "", nil)
		var e httpError
		if err := json.Unmarshal(b, &e); err != nil || status != want || e.Code != want || e.Message == "" {
			t.Errorf("GET %s: %d %s", query, status, b)
		}
	}
	if status, v := c.call("/filesystem.Filesystem/MakeDir", `{"path":"`+c.dir+`"}`); status != 409 || v["code"] != "already_exists" {
		t.Errorf("%d %v", status, v)
	}
	if status, v := c.call("/filesystem.Filesystem/Stat", `{"path":"`+c.dir+`/one"}`); status != 200 || dig(v, "entry", "type") != "FILE_TYPE_FILE" || dig(v, "entry", "permissions") != "-rw-r--r--" {
		t.Errorf("%d %v", status, v)
	}
	if status, v := c.call("/filesystem.Filesystem/Remove", `{"path":"`+c.dir+`/none"}`); status != 200 {
		t.Errorf("%d %v", status, v)
	}
}

// Without a work folder header, relative paths start at the user's home.
func TestRelativePathsOfE2B(t *testing.T) {
	c := newE2B(t)
	me, _ := user.Current()
	status, v := c.call("/filesystem.Filesystem/Stat", `{"path":"."}`)
	if status != 200 || dig(v, "entry", "path") != me.HomeDir {
		t.Errorf("%d %v", status, v)
	}
	status, v = c.call("/filesystem.Filesystem/Stat", `{"path":"."}`, headerWorkdir, "1")
	if status != 200 || dig(v, "entry", "path") != shared().opt.Cwd {
		t.Errorf("%d %v", status, v)
	}
}

// E2B's clients see where a symbolic link leads, and ours what it says.
func TestSymbolicLinksOfE2B(t *testing.T) {
	c := newE2B(t)
	for link, to := range map[string]string{"to": "one", "again": "to", "broken": "none"} {
		if err := os.Symlink(to, c.dir+"/"+link); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(c.dir+"/one", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(c.dir)
	if err != nil {
		t.Fatal(err)
	}
	for link, want := range map[string][2]string{"to": {dir + "/one", "one"}, "again": {dir + "/one", "to"}, "broken": {c.dir + "/broken", "none"}} {
		for i, headers := range [][]string{nil, {headerWorkdir, "1"}} {
			if _, v := c.call("/filesystem.Filesystem/Stat", `{"path":"`+c.dir+`/`+link+`"}`, headers...); dig(v, "entry", "symlinkTarget") != want[i] {
				t.Errorf("%s: %v, want %s", link, v, want[i])
			}
		}
	}
}

func TestPolledWatch(t *testing.T) {
	c := newE2B(t)
	_, v := c.call("/filesystem.Filesystem/CreateWatcher", `{"path":"`+c.dir+`","includeEntry":true}`)
	id, _ := v["watcherId"].(string)
	if err := os.WriteFile(c.dir+"/x", []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for { // the event arrives asynchronously
		_, v = c.call("/filesystem.Filesystem/GetWatcherEvents", `{"watcherId":"`+id+`"}`)
		if events, _ := v["events"].([]any); len(events) > 0 {
			if dig(events[0], "name") != "x" || dig(events[0], "type") != "EVENT_TYPE_CREATE" || dig(events[0], "entry", "path") != c.dir+"/x" {
				t.Errorf("event %v", events[0])
			}
			break
		}
		if v["code"] != nil {
			t.Fatal(v)
		}
	}
	if status, _ := c.call("/filesystem.Filesystem/RemoveWatcher", `{"watcherId":"`+id+`"}`); status != 200 {
		t.Error(status)
	}
	if status, _ := c.call("/filesystem.Filesystem/GetWatcherEvents", `{"watcherId":"`+id+`"}`); status != 404 {
		t.Error(status)
	}
	for i := range maxWatchers + 1 {
		if _, v = c.call("/filesystem.Filesystem/CreateWatcher", `{"path":"`+c.dir+`"}`); v["code"] == "resource_exhausted" {
			if i < maxWatchers {
				t.Errorf("refused watcher %d", i)
			}
			break
		}
	}
	if v["code"] == nil {
		t.Error("watchers are not bounded")
	}
	shared().watchers.close()
}

func TestNothingWithoutTheKey(t *testing.T) {
	c := newE2B(t)
	for _, key := range []string{"", "wrong", testKey + "x", testKey[:3]} {
		c.key = key
		for _, path := range []string{"/process.Process/List", "/bothy.guest.v1.Guest/Adopt", "/bothy.guest.v1.Guest/Stats", "/bothy.guest.v1.Code/ListContexts"} {
			if status, v := c.call(path, `{"key":"mine"}`); status != 401 || v["code"] != "unauthenticated" {
				t.Errorf("%s with the key %q: %d %v", path, key, status, v)
			}
		}
		for _, path := range []string{"/files?path=/etc/passwd", "/bothy/files?path=/etc/passwd", "/bothy/archive?path=/etc", "/envs", "/metrics", "/", "/none"} {
			if status, b := c.do("GET", path, "", nil); status != 401 {
				t.Errorf("GET %s with the key %q: %d %s", path, key, status, b)
			}
		}
		if status, _ := c.do("GET", "/health", "", nil); status != 204 {
			t.Errorf("health: %d", status)
		}
	}
}

func sign(text string) string {
	sum := sha256.Sum256([]byte(text))
	return url.QueryEscape("v1_" + base64.RawStdEncoding.EncodeToString(sum[:]))
}

func TestSignedURLs(t *testing.T) {
	c := newE2B(t)
	path := filepath.Join(c.dir, "f")
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	c.key = ""
	soon, past := fmt.Sprint(time.Now().Add(time.Hour).Unix()), fmt.Sprint(time.Now().Add(-time.Hour).Unix())
	read := path + ":read::" + testKey
	for query, want := range map[string]int{
		"path=" + path + "&signature=" + sign(read):                                            200,
		"path=" + path + "&signature=" + sign(read+":"+soon) + "&signature_expiration=" + soon: 200,
		"path=" + path + "&signature=" + sign(read+":"+past) + "&signature_expiration=" + past: 401,
		"path=" + path + "&signature=" + sign(read) + "&signature_expiration=" + soon:          401,
		"path=" + path + "&signature=" + sign(read+":x") + "&signature_expiration=x":           401,
		"path=/etc/passwd&signature=" + sign(read):                                             401,
		"path=" + path + "&username=root&signature=" + sign(read):                              401,
		"path=" + path + "&signature=" + sign(path+":write::"+testKey):                         401,
		"path=" + path + "&signature=" + sign(path+":read::"):                                  401,
		"path=" + path + "&signature=":                                                         401,
	} {
		if status, b := c.do("GET", "/files?"+query, "", nil); status != want {
			t.Errorf("GET %s: %d %s", query, status, b)
		}
	}
	write := sign(path + ":write::" + testKey)
	if status, b := c.do("POST", "/files?path="+path+"&signature="+write, "application/octet-stream", strings.NewReader("y")); status != 200 {
		t.Errorf("write: %d %s", status, b)
	}
	if status, _ := c.do("GET", "/bothy/files?path="+path+"&signature="+sign(read), "", nil); status != 401 {
		t.Errorf("a signature opens another door: %d", status)
	}
}

func TestBothVersionsOfHTTPAreServed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // ends Serve with an error, which does not matter here
	go shared().server.Serve(l)
	for _, version := range []int{1, 2} {
		var p http.Protocols
		p.SetHTTP1(version == 1)
		p.SetUnencryptedHTTP2(version == 2)
		tr := &http.Transport{Protocols: &p}
		defer tr.CloseIdleConnections()
		req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+l.Addr().String()+"/envs", nil)
		req.Header.Set(headerKey, testKey)
		res, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.ProtoMajor != version || string(b) != "{\"OWN\":\"1\"}\n" {
			t.Errorf("HTTP/%d: %s %q", version, res.Proto, b)
		}
	}
}

func TestOnlyThePeerIsServed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := &peerListener{l, netip.MustParseAddr("127.0.0.1")}
	stranger := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	go func() {
		if c, err := stranger.Dial("tcp", l.Addr().String()); err == nil {
			defer c.Close()
			if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Error("the stranger was not hung up on")
			}
		}
		if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
			defer c.Close()
		}
	}()
	c, err := p.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if from := c.RemoteAddr().(*net.TCPAddr).IP.String(); from != "127.0.0.1" {
		t.Errorf("accepted %s", from)
	}
}

func TestMemoryIsReleasedWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var released atomic.Int32
		i := &idle{release: func() { released.Add(1) }}
		i.enter()
		time.Sleep(time.Hour)
		i.leave()
		time.Sleep(idleTime - 1)
		i.enter()
		i.leave()
		time.Sleep(idleTime - 1)
		if released.Load() != 0 {
			t.Error("released while busy")
		}
		time.Sleep(time.Hour)
		if n := released.Load(); n != 1 {
			t.Errorf("released %d times", n)
		}
	})
}

func TestEveryErrorHasItsForms(t *testing.T) {
	for code := range codes {
		e := newHTTPError(bothy.Errorf(code, "x").WithHint("y"))
		if e.Code < 400 || e.Kind != code || e.Hint != "y" || e.Message != "x" {
			t.Errorf("%+v", e)
		}
	}
	if e := newHTTPError(io.ErrUnexpectedEOF); e.Code != 500 || strings.Contains(e.Message, "EOF") {
		t.Errorf("an internal error shows: %+v", e)
	}
}
