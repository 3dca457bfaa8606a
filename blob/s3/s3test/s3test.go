// Package s3test runs an S3 server for tests, behind a proxy that can inject faults.
package s3test

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/bothy-dev/bothy/internal/freeport"
)

// The keys of the server.
const (
	AccessKey = "bothy-test"
	SecretKey = "bothy-test-secret"
	Region    = "us-east-1"
)

// Server is a VersityGW that keeps objects as files of a folder.
type Server struct {
	Client *minio.Client
	dir    string
	direct string // its own address

	mu     sync.Mutex
	faults Faults
	proxy  *httptest.Server
	seen   []string // what was asked for, as METHOD /path
}

// Faults are injected between a client and the server. Each is called for every request.
type Faults struct {
	// Disconnect closes the connection without a response.
	Disconnect func(r *http.Request) bool
	// Cut truncates the response after the returned number of bytes, if that is above 0.
	Cut func(r *http.Request) int64
	// Answer changes the body of the response.
	Answer func(r *http.Request, body []byte) []byte
	// Lose has an object accepted and not stored.
	Lose func(r *http.Request) bool
	// Before is called first, and may wait.
	Before func(r *http.Request)
}

// Start runs a server until the test ends, and sets the variables of its keys.
func Start(t testing.TB) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("an S3 server takes minutes to build the first time, which a short run does without")
	}
	t.Setenv("AWS_ACCESS_KEY_ID", AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", SecretKey)
	return StartIn(t, t.TempDir())
}

// StartIn is Start with the caller's folder. It does not change the environment.
func StartIn(t testing.TB, dir string) *Server {
	t.Helper()
	s := &Server{dir: dir, direct: freeport.ForTest(t)}
	for _, d := range []string{"objects", "meta"} {
		if err := os.MkdirAll(filepath.Join(s.dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program(t), "--port", s.direct, "--access", AccessKey, "--secret", SecretKey, "--region", Region, "--quiet", "--keep-alive",
		"posix", "--sidecar", filepath.Join(s.dir, "meta"), filepath.Join(s.dir, "objects"))
	said := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // tests that are killed leave nothing
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("the S3 server:\n%s", said)
		}
	})
	s.waitFor(t, ended)
	s.startProxy(t)
	var err error
	if s.Client, err = minio.New(s.direct, &minio.Options{Creds: credentials.NewStaticV4(AccessKey, SecretKey, ""), Region: Region}); err != nil {
		t.Fatal(err)
	}
	return s
}

// program returns the path of the server's program, building it if needed.
func program(t testing.TB) string {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	if !filepath.IsAbs(here) { // built with -trimpath
		here = moduleFolder(t)
	} else {
		here = filepath.Join(filepath.Dir(here), "../../..")
	}
	out, err := exec.Command(filepath.Join(here, "scripts/versitygw")).Output()
	if err != nil {
		t.Fatalf("cannot build an S3 server: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

func moduleFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "scripts/versitygw")); err == nil {
			return dir
		}
	}
	t.Fatal("the test does not run in the module's folder")
	return ""
}

func (s *Server) waitFor(t testing.TB, ended <-chan error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", s.direct)
		if err == nil {
			c.Close()
			return
		}
		select {
		case err := <-ended:
			t.Fatalf("the S3 server ended: %v", err)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("the S3 server does not answer: %v", err)
		}
	}
}

func (s *Server) startProxy(t testing.TB) {
	to := &url.URL{Scheme: "http", Host: s.direct}
	rp := &httputil.ReverseProxy{
		// The host's name is signed and stays.
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(to); r.Out.Host = r.In.Host },
		ErrorLog:       log.New(io.Discard, "", 0),
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ModifyResponse: s.injectFaults,
	}
	s.proxy = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		f := s.faults
		s.seen = append(s.seen, r.Method+" "+r.URL.Path)
		s.mu.Unlock()
		if f.Before != nil {
			f.Before(r)
		}
		if f.Disconnect != nil && f.Disconnect(r) {
			panic(http.ErrAbortHandler)
		}
		if f.Lose != nil && r.Method == http.MethodPut && f.Lose(r) {
			sum := md5.New()
			if _, err := io.Copy(sum, r.Body); err != nil {
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("ETag", fmt.Sprintf("%q", hex.EncodeToString(sum.Sum(nil))))
			return
		}
		rp.ServeHTTP(w, r)
	}))
	t.Cleanup(s.proxy.Close)
}

func (s *Server) injectFaults(r *http.Response) error {
	s.mu.Lock()
	f := s.faults
	s.mu.Unlock()
	if f.Answer != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		r.Body = io.NopCloser(strings.NewReader(string(f.Answer(r.Request, body))))
	}
	if f.Cut != nil {
		if n := f.Cut(r.Request); n > 0 {
			r.Body = io.NopCloser(io.MultiReader(io.LimitReader(r.Body, n), broken{}))
		}
	}
	return nil
}

// broken is the end of a connection in the middle of an answer.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// InjectFaults injects faults into all following requests until mend is called.
func (s *Server) InjectFaults(f Faults) (mend func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults = Faults{}
	}
}

// Asked lists the requests so far that begin with METHOD /path.
func (s *Server) Asked(prefix string) (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.seen {
		if strings.HasPrefix(r, prefix) {
			all = append(all, r)
		}
	}
	return all
}

// Endpoint is the URL of the proxy, where faults are injected.
func (s *Server) Endpoint() string { return s.proxy.URL }

// Bucket creates a bucket, and returns its URL for the setting blobs.
func (s *Server) Bucket(t testing.TB, name string) string {
	t.Helper()
	if err := s.Client.MakeBucket(context.Background(), name, minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	return s.URL(name)
}

// URL is the value of the setting blobs for a bucket.
func (s *Server) URL(bucket string) string {
	return "s3://" + bucket + "?endpoint=" + url.QueryEscape(s.Endpoint()) + "&region=" + Region + "&path_style=true"
}

// Objects lists what is in a bucket.
func (s *Server) Objects(t testing.TB, bucket string) (keys []string) {
	t.Helper()
	for o := range s.Client.ListObjectsIter(context.Background(), bucket, minio.ListObjectsOptions{Recursive: true}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

// Remove deletes an object behind its writer's back.
func (s *Server) Remove(bucket, key string) error {
	return s.Client.RemoveObject(context.Background(), bucket, key, minio.RemoveObjectOptions{})
}

// Get reads an object.
func (s *Server) Get(t testing.TB, bucket, key string) string {
	t.Helper()
	o, err := s.Client.GetObject(context.Background(), bucket, key, minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	text, err := io.ReadAll(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Put writes an object.
func (s *Server) Put(t testing.TB, bucket, key, text string) {
	t.Helper()
	_, err := s.Client.PutObject(context.Background(), bucket, key, strings.NewReader(text), int64(len(text)), minio.PutObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
