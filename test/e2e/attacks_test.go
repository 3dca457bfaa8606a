package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ulikunitz/xz"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/agents/agentstest"
)

// attack is what a greedy tenant does to take all memory, time or disk of the server, or what is not its own.
type attack struct {
	name string
	// do makes the attack once, and returns what the server said against it.
	do func(x *attacker, ctx context.Context) string
	// says is part of that; empty if the attack is no error, or not always the same.
	says string
}

const from = "FROM " + templateName + "\n"

// attacks are all there are. What they need outside of the server is made here.
func attacks(t *testing.T) []attack {
	registry, service := endless(t), endless(t)
	silent := listener(t)
	build := func(dockerfile string, upload func() []byte) func(*attacker, context.Context) string {
		return func(x *attacker, ctx context.Context) string { return x.build(ctx, upload(), dockerfile) }
	}
	of := func(names ...string) func() []byte { return func() []byte { return archive(names...) } }
	nothing := func() []byte { return nil }
	return []attack{
		{"a name of 5,000 bytes", build(from+"COPY . /\n", of(strings.Repeat("n", 5000))), "in a path"},
		{"a path of 20,000 folders", build(from+"COPY . /\n", of(strings.Repeat("d/", 20_000)+"f")), "path"},
		{"an argument that doubles", build("FROM scratch\nARG A=12345678\n"+strings.Repeat("ARG A=$A$A\n", 30), nothing), "ARG"},
		{"a variable that doubles", build("FROM scratch\nENV A=12345678\n"+strings.Repeat("ENV A=$A$A\n", 30), nothing), "ENV"},
		{"a Dockerfile of 12 MB", build(from+strings.Repeat("# comment\n", 12<<20/10), nothing), "Dockerfile"},
		{"many builds that fail", (*attacker).failingBuilds, ""},
		{"an image without end", build("FROM "+registry.host+"/a:1\n", nothing), "more than"},
		{"a dictionary of 4 GB", build(from+"ADD x.tar.xz /\n", tarOf("x.tar.xz", greedyXZ())), "dictionary"},
		{"100,000 files", build(from+"COPY . /srv/\n", emptyFiles(100_000)), ""},
		{"20,000 files for a home", build(from+"COPY . /home/user/\n", emptyFiles(20_000)), ""},
		{"256 MB of nothing", build(from+"COPY . /\n", longEnd), ""},
		{"a large .dockerignore", build(from+"COPY . /\n", tarOf(".dockerignore", bytes.Repeat([]byte("a*b\n"), 1<<18))), ".dockerignore"},
		{"a slow .dockerignore", build(from+"COPY . /\n", slowIgnore), ".dockerignore"},
		{"hard links of packages", (*attacker).packages, ""},
		{"logins without a key", (*attacker).logins, ""},
		{"many results of code", (*attacker).results, "results"},
		{"a folder of 5,000 files", (*attacker).listings, ""},
		{"bodies of 15 MB", (*attacker).bodies, ""},
		{"nested and tiny values", (*attacker).values, ""},
		{"long outputs", (*attacker).outputs, ""},
		{"requests that never end", (*attacker).halves, ""},
		{"streams", (*attacker).streams, ""},
		{"builds by another protocol", (*attacker).foreignBuilds, ""},
		{"keys", (*attacker).keys, ""},
		{"usage", (*attacker).usage, ""},
		{"intercepted headers", func(x *attacker, ctx context.Context) string { return x.headers(ctx, silent) }, ""},
		{"agents without end", func(x *attacker, ctx context.Context) string { return x.agents(ctx, service) }, "asked"},
		{"a session that names the host's files", (*attacker).session, ""},
		{"another tenant's sandbox", (*attacker).foreign, ""},
		{"tokens of a port, and its page in caches", (*attacker).visitor, "of the guest, of the guest"},
		{"a command again after a pause", (*attacker).twice, ""},
		{"a sandbox several times", (*attacker).creates, "1 made"},
	}
}

// build uploads a context, builds a template, and waits for its end, which the server has to reach by itself.
// It returns what the server said against it.
func (x *attacker) build(ctx context.Context, upload []byte, dockerfile string) string {
	req := bothy.BuildRequest{Name: fmt.Sprint("attack-", x.builds.Add(1)), Dockerfile: dockerfile, MemoryMB: 256, DiskMB: 256}
	if upload != nil {
		up, err := x.admin.Builder.UploadContext(ctx, bytes.NewReader(upload))
		if err != nil {
			return err.Error()
		}
		req.ContextID = up.ID
	}
	b, err := x.admin.Builder.StartBuild(ctx, req)
	for ; err == nil && !b.State.Ended(); time.Sleep(100 * time.Millisecond) {
		b, err = x.admin.Builder.Build(ctx, b.ID)
	}
	if err != nil {
		return err.Error()
	}
	_ = x.admin.Templates.RemoveTemplate(ctx, req.Name)
	return b.Error
}

// archive is a tar of empty files with these names, and of one named x.
func archive(names ...string) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range append(names, "x") {
		_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Format: tar.FormatPAX})
	}
	_ = w.Close()
	return b.Bytes()
}

// emptyFiles is a compressed tar of n empty files.
func emptyFiles(n int) func() []byte {
	return func() []byte {
		return packed(func(w *tar.Writer) {
			for i := range n {
				put(w, fmt.Sprint("d/", i), nil)
			}
		})
	}
}

// tarOf is a compressed tar of one file.
func tarOf(name string, content []byte) func() []byte {
	return func() []byte { return packed(func(w *tar.Writer) { put(w, name, content) }) }
}

func put(w *tar.Writer, name string, content []byte) {
	_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg})
	_, _ = w.Write(content)
}

func packed(fill func(*tar.Writer)) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	w := tar.NewWriter(z)
	fill(w)
	_ = w.Close()
	_ = z.Close()
	return b.Bytes()
}

// longEnd is a tar without files that ends with 256 MB of zeros.
func longEnd() []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	for range 256 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	return b.Bytes()
}

// greedyXZ is an archive of some bytes that asks for a dictionary of 4 GB.
func greedyXZ() []byte {
	var b bytes.Buffer
	w, err := xz.NewWriter(&b)
	if err == nil {
		_, _ = w.Write(archive())
		_ = w.Close()
	}
	head := b.Bytes()[12 : 12+(int(b.Bytes()[12])+1)*4]
	head[bytes.Index(head, []byte{0x21, 1})+2] = 40
	binary.LittleEndian.PutUint32(head[len(head)-4:], crc32.ChecksumIEEE(head[:len(head)-4]))
	return b.Bytes()
}

// slowIgnore has 64 KB of patterns, and 50,000 files that nearly match each.
func slowIgnore() []byte {
	return packed(func(w *tar.Writer) {
		put(w, ".dockerignore", bytes.Repeat([]byte("**/a*a*b\n"), 60<<10/9))
		for i := range 50_000 {
			put(w, fmt.Sprint("d/", strings.Repeat("a", 50), i), nil)
		}
	})
}

// failingBuilds are builds at once, each with a Dockerfile of nearly 1 MB.
func (x *attacker) failingBuilds(ctx context.Context) string {
	file := "FROM scratch\n" + strings.Repeat("# comment\n", 100_000) + "COPY missing /\n"
	return fmt.Sprint(x.crowd(30, func(int) int {
		if strings.Contains(x.build(ctx, nil, file), "missing") {
			return 1
		}
		return 0
	}))
}

// packages asks three times for the packages of a template with one large description under 4,000 names, and
// hangs up each time.
func (x *attacker) packages(ctx context.Context) string {
	name := fmt.Sprint("links-", x.builds.Add(1))
	up, err := x.admin.Builder.UploadContext(ctx, bytes.NewReader(packed(func(w *tar.Writer) {
		const first = "node_modules/a/package.json"
		put(w, first, []byte(`{"name":"a","version":"1","x":"`+strings.Repeat("x", 900<<10)+`"}`))
		for i := range 4000 {
			_ = w.WriteHeader(&tar.Header{Name: fmt.Sprintf("node_modules/b%d/package.json", i), Linkname: first, Typeflag: tar.TypeLink})
		}
	})))
	if err != nil {
		return err.Error()
	}
	b, err := x.admin.Builder.StartBuild(ctx, bothy.BuildRequest{Name: name, Dockerfile: from + "COPY . /srv/\n", ContextID: up.ID, MemoryMB: 256, DiskMB: 256})
	for ; err == nil && !b.State.Ended(); time.Sleep(100 * time.Millisecond) {
		b, err = x.admin.Builder.Build(ctx, b.ID)
	}
	if err != nil || b.Error != "" {
		return fmt.Sprint(err, b)
	}
	defer func() { _ = x.admin.Templates.RemoveTemplate(ctx, name) }()
	return x.many(3, func(int) int {
		short, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		return x.send(short, "GET", "/v1/sboms/"+name+"?format=spdx", nil, nil)
	})
}

// many sends n requests at the same time, and returns how they were answered. What does not arrive where it should
// would test nothing.
func (x *attacker) many(n int, send func(i int) int) string {
	got := x.crowd(n, send)
	for _, status := range []int{401, 403, 404, 405} {
		if got[status] > 0 {
			x.Errorf("statuses %v", got)
		}
	}
	return fmt.Sprint(got)
}

// send sends a request, with the attacker's key unless header has another, and returns the status, or 0.
func (x *attacker) send(ctx context.Context, method, path string, body io.Reader, header http.Header) int {
	status, _, _ := x.ask(ctx, method, path, body, header)
	return status
}

// ask is like send, and returns the headers and the beginning of the answer, too.
func (x *attacker) ask(ctx context.Context, method, path string, body io.Reader, header http.Header) (int, http.Header, string) {
	r, err := http.NewRequestWithContext(ctx, method, x.s.URL()+path, body)
	if err != nil {
		return 0, nil, ""
	}
	r.Header.Set("Authorization", "Bearer "+x.key)
	r.Header.Set("Content-Type", "application/json")
	for name := range header {
		r.Header.Set(name, header.Get(name))
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, "" // the server hung up
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(res.Body, 16<<10))
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, res.Header, string(text)
}

// logins sends 100 logins at once, each of 16 MB.
func (x *attacker) logins(ctx context.Context) string {
	return x.many(100, func(int) int {
		body := io.LimitReader(strings.NewReader(`{"key":"`+strings.Repeat("a", 16<<20)), 16<<20)
		return x.send(ctx, "POST", "/console/session", body, http.Header{"Authorization": {""}, "X-Bothy-Console": {"1"}})
	})
}

func (x *attacker) results(ctx context.Context) string {
	r, err := x.Code.RunCode(ctx, x.id, bothy.CodeRequest{Code: "for i in range(10500): display('')"})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(len(r.Results), " results")
}

func (x *attacker) listings(ctx context.Context) string {
	x.sh(ctx, "mkdir -p /tmp/many && cd /tmp/many && seq -f %0200.0f 5000 | xargs touch")
	return x.many(10, func(int) int { return x.send(ctx, "GET", "/v1/sandboxes/"+x.id+"/files?path=/tmp/many", nil, nil) })
}

func (x *attacker) sh(ctx context.Context, line string) {
	x.shIn(ctx, x.id, line)
}

func (x *attacker) shIn(ctx context.Context, id, line string) {
	_, _ = x.Exec.Exec(ctx, id, bothy.ExecRequest{Command: bothy.Command{Line: line}})
}

func (x *attacker) bodies(ctx context.Context) string {
	body, _ := json.Marshal(map[string]string{"path": "/tmp/x", "content": strings.Repeat("x", 15<<20)})
	return x.many(40, func(int) int { return x.send(ctx, "POST", "/v1/sandboxes/"+x.id+"/files", bytes.NewReader(body), nil) })
}

// values sends what takes much more memory decoded, to each protocol.
func (x *attacker) values(ctx context.Context) string {
	tiny := `{"metadata":{"a":["` + strings.Repeat(`","`, 1<<20) + `"]},"name":["` + strings.Repeat(`","`, 100_000) + `"]}`
	deep := strings.Repeat(`{"metadata":`, 300_000)
	paths := []string{"/v1/sandboxes", "/sandboxes", "/v1/containers", "/api/sandboxes/mcp"}
	return x.many(40, func(i int) int {
		body := tiny
		if i%2 == 0 {
			body = deep
		}
		return x.send(ctx, "POST", paths[i/2%len(paths)], strings.NewReader(body), http.Header{"X-Api-Key": {x.key}})
	})
}

func (x *attacker) outputs(ctx context.Context) string {
	body := x.run("head -c 9000000 /dev/zero | tr '\\0' a")
	return x.many(12, func(int) int { return x.send(ctx, "POST", "/v1/sandboxes/"+x.id+"/exec", bytes.NewReader(body), nil) })
}

// halves opens connections that never send a whole request.
func (x *attacker) halves(ctx context.Context) string {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 66)}}
	n := 0
	for range 600 {
		c, err := dialer.DialContext(ctx, "tcp", x.s.Address)
		if err != nil {
			continue
		}
		defer c.Close()
		n++
		_, _ = io.WriteString(c, "POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nX-Half: "+strings.Repeat("x", 60<<10))
	}
	return fmt.Sprint(n, " connections")
}

func (x *attacker) streams(ctx context.Context) string {
	ctx, leave := context.WithTimeout(ctx, 3*time.Second)
	defer leave()
	return x.many(100, func(int) int { return x.send(ctx, "GET", "/v1/sandboxes/"+x.id+"/files/watch?path=/tmp", nil, nil) })
}

func (x *attacker) foreignBuilds(ctx context.Context) string {
	return x.many(500, func(i int) int {
		return x.send(ctx, "POST", "/v3/templates", strings.NewReader(fmt.Sprintf(`{"name":"attack-%d"}`, i)), http.Header{"X-Api-Key": {x.adminKey}})
	})
}

func (x *attacker) keys(ctx context.Context) string {
	made, refused := make(chan string, 300), atomic.Int64{}
	x.crowd(300, func(int) int {
		k, err := x.admin.Tokens.CreateToken(ctx, bothy.TokenCreate{Name: "more"})
		if err != nil {
			refused.Add(1)
			return 0
		}
		made <- k.ID
		return 0
	})
	close(made)
	n := len(made)
	for id := range made {
		_ = x.admin.Tokens.DeleteToken(ctx, id)
	}
	return fmt.Sprintf("%d made, %d refused", n, refused.Load())
}

func (x *attacker) usage(ctx context.Context) string {
	return x.many(50, func(int) int {
		return x.send(ctx, "GET", "/v1/usage?from=2024-01-01T00:00:00Z&group_by=sandbox&limit=10000", nil, nil)
	})
}

// headers has a sandbox send long headers and many streams through an intercepted connection.
func (x *attacker) headers(ctx context.Context, port uint16) string {
	sb, err := x.Sandboxes.Create(ctx, bothy.SandboxCreate{
		Template: templateName,
		Network:  &bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: []string{attackName}, AllowPorts: []uint16{port}},
		Secrets:  []bothy.Secret{{Name: "TOKEN", Value: "the-value-itself", Hosts: []string{attackName}}},
	})
	if err != nil {
		return err.Error()
	}
	defer func() { _ = x.Sandboxes.Terminate(context.WithoutCancel(ctx), sb.ID) }()
	r, err := x.Code.RunCode(ctx, sb.ID, bothy.CodeRequest{TimeoutSeconds: 20, Code: fmt.Sprintf(`
import socket, ssl, threading
context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE
sent = []
def one():
    n = 0
    try:
        s = context.wrap_socket(socket.create_connection((%[1]q, %[2]d), 10), server_hostname=%[1]q)
        s.settimeout(10)
        s.sendall(b"GET / HTTP/1.1\r\nHost: %[1]s\r\n")
        while n < 20 << 20:
            s.sendall(b"X-%%d: " %% n + b"x" * 60000 + b"\r\n")
            n += 60000
    except OSError as e:
        sent.append(str(e)[:60])
    sent.append(n >> 10)
all = [threading.Thread(target=one) for _ in range(60)]
for t in all: t.start()
for t in all: t.join()
print(sent[:8])`, attackName, port)})
	if err != nil {
		return err.Error()
	}
	return fmt.Sprint(r.Stdout, r.Error)
}

// agents attaches a service that answers without an end, until the server has asked it a few times.
func (x *attacker) agents(ctx context.Context, service *endlessServer) string {
	n := service.asked.Load()
	a, err := x.admin.Agents.AttachAgents(ctx, bothy.AgentAttach{
		Environment: fmt.Sprint("env_", n), Key: agentsKey, URL: "http://" + service.host, Sandbox: &bothy.SandboxCreate{Template: templateName},
	})
	if err != nil {
		return err.Error()
	}
	for ctx.Err() == nil && service.asked.Load() < n+3 {
		time.Sleep(50 * time.Millisecond)
	}
	if err := x.admin.Agents.DetachAgents(ctx, a.ID); err != nil {
		return err.Error()
	}
	return fmt.Sprint("asked ", service.asked.Load()-n)
}

// session has a service give a session whose description, read by two parsers, names a folder of the host.
func (x *attacker) session(ctx context.Context) string {
	q := agentstest.New(agentsEnvironment, agentsKey, time.Minute)
	defer q.Close()
	outside := x.s.Dir + "/outside/x.service.d"
	store := q.MemoryStore(outside, "read_write", map[string]string{"/x.conf": "[Service]"})
	s := q.Session(nil, store)
	s.Answer(fmt.Appendf(nil, `{"id":"%s","type":"session","agent":{"skills":[]},"resources":[{"type":"file","type":"memory_store",`+
		`"memory_store_id":"%s","access":"read_write","mount_path":"%s"}]}`, s.ID, store.ID, outside))
	a, err := x.admin.Agents.AttachAgents(ctx, bothy.AgentAttach{Environment: agentsEnvironment, Key: agentsKey, URL: q.URL, Sandbox: &bothy.SandboxCreate{Template: templateName}})
	if err != nil {
		return err.Error()
	}
	s.Start("bash", in{"command": "true"})
	s.End()
	q.AwaitRest(s.ID)
	if err := x.admin.Agents.DetachAgents(ctx, a.ID); err != nil {
		return err.Error()
	}
	if _, err := os.Stat(x.s.Dir + "/outside"); err == nil {
		x.Errorf("the service wrote %s on the host", outside)
	}
	return ""
}

// endlessServer answers everything without an end, compressed for those who take it.
type endlessServer struct {
	host  string
	asked atomic.Int64
}

func endless(t *testing.T) *endlessServer {
	e := &endlessServer{}
	part := bytes.Repeat([]byte(`{"a":"`+strings.Repeat("x", 1000)+`"},`), 1000)
	packed := sync.OnceValue(func() []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = io.WriteString(z, `{"schemaVersion":2,"data":[`)
		for range 500 {
			_, _ = z.Write(part)
		}
		_ = z.Close()
		return b.Bytes()
	})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.asked.Add(1)
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed())
			return
		}
		_, err := io.WriteString(w, `{"schemaVersion":2,"data":[`)
		for range 1000 {
			if err == nil {
				_, err = w.Write(part)
			}
		}
	}))
	t.Cleanup(s.Close)
	e.host = strings.TrimPrefix(s.URL, "http://")
	return e
}

// listener accepts connections at attackAddr, and says nothing.
func listener(t *testing.T) uint16 {
	l, err := net.Listen("tcp", attackAddr+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}
