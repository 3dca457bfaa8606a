package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	gitName  = "git.example.org"
	gitAddr  = "127.0.0.77"
	gitToken = "glpat-the-token-itself-7f3a"
)

// gitHost serves repositories over HTTPS with git's own server. Anybody may read team.git; everything
// else needs the token.
type gitHost struct {
	*testing.T
	dir  string
	port string
	// ca is the file with the authority of its certificate.
	ca      string
	refused atomic.Int32
}

func newGitHost(t *testing.T) *gitHost {
	t.Helper()
	h := &gitHost{T: t, dir: t.TempDir()}
	backend := filepath.Join(strings.TrimSpace(h.git("--exec-path")), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Fatalf("this test needs git's server, which comes with git: %v", err)
	}
	for _, name := range []string{"team.git", "private.git"} {
		repo := filepath.Join(h.dir, "repositories", name)
		h.git("init", "--quiet", "--bare", "--initial-branch=main", repo)
		h.git("-C", repo, "config", "http.receivepack", "true")
		tree := strings.TrimSpace(h.git("-C", repo, "hash-object", "-t", "tree", "-w", "/dev/null"))
		first := strings.TrimSpace(h.git("-C", repo, "commit-tree", "-m", "the first", tree))
		h.git("-C", repo, "update-ref", "refs/heads/main", first)
	}
	cert := h.certificate()
	l, err := tls.Listen("tcp", gitAddr+":0", &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	_, h.port, _ = net.SplitHostPort(l.Addr().String())
	serve := &cgi.Handler{
		Path: backend, Logger: log.New(io.Discard, "", 0), Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + filepath.Join(h.dir, "repositories"), "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=me", "GIT_CONFIG_GLOBAL=/dev/null"},
	}
	server := &http.Server{Handler: h.authorize(serve), ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	return h
}

// git runs git on the host.
func (h *gitHost) git(args ...string) string {
	h.Helper()
	cmd := exec.Command("git", args...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=host", "GIT_AUTHOR_EMAIL=host@example.org", "GIT_COMMITTER_NAME=host", "GIT_COMMITTER_EMAIL=host@example.org")
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// authorize requires the token, and its errors repeat the credential, as those of some hosts do.
func (h *gitHost) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-You-Said", r.Header.Get("Authorization"))
		public := strings.HasPrefix(r.URL.Path, "/team.git/") &&
			!strings.HasSuffix(r.URL.Path, "/git-receive-pack") && r.URL.Query().Get("service") != "git-receive-pack"
		if user, password, _ := r.BasicAuth(); !public && (user != "me" && user != "x-access-token" || password != gitToken) {
			h.refused.Add(1)
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "you are not me, but "+user+" with "+password, http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// certificate makes an authority and its certificate for the host's name.
func (h *gitHost) certificate() tls.Certificate {
	h.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		h.Fatal(err)
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of a test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	rootDER, err := x509.CreateCertificate(rand.Reader, root, root, &key.PublicKey, key)
	if err != nil {
		h.Fatal(err)
	}
	own := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: []string{gitName}, NotBefore: root.NotBefore, NotAfter: root.NotAfter,
	}
	der, err := x509.CreateCertificate(rand.Reader, own, root, &key.PublicKey, key)
	if err != nil {
		h.Fatal(err)
	}
	h.ca = filepath.Join(h.dir, "ca.pem")
	if err := os.WriteFile(h.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER}), 0o644); err != nil {
		h.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serverFor is a server that can resolve and reach the git host and trusts its authority.
func (h *gitHost) serverFor() *server {
	h.Helper()
	s := stoppedServer(h.T)
	s.NoPool = true
	s.Settings = fmt.Sprintf("network:\n  trust_host_ca: true\n  ca_bundle: %s\n  allow: [%s/32]\n", h.ca, gitAddr)
	hosts := filepath.Join(h.dir, "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"+gitAddr+" "+gitName+"\n"), 0o644); err != nil {
		h.Fatal(err)
	}
	s.Wrap = []string{"unshare", "--mount", "--propagation", "private", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, hosts}
	if err := s.Start(); err != nil {
		h.Fatal(err)
	}
	return s
}

// A sandbox clones, commits and pushes with a credential that it cannot read.
func TestGitOverHTTPSWithABrokeredCredential(t *testing.T) {
	t.Parallel()
	h := newGitHost(t)
	var port uint16
	_, _ = fmt.Sscan(h.port, &port)
	s := h.serverFor()
	b := s.newBox(t, bothy.SandboxCreate{
		Network: &bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: []string{gitName}, AllowPorts: []uint16{port}},
		Secrets: []bothy.Secret{{Name: "TOKEN", Value: gitToken, Hosts: []string{gitName}}},
		Env:     map[string]string{"URL": "https://" + gitName + ":" + h.port, "GIT_TERMINAL_PROMPT": "0"},
	})
	// Git's trace, with full headers.
	const trace = "export GIT_TRACE_CURL=/tmp/trace GIT_TRACE_REDACT=0; cd /tmp; "
	b.sh("", `git config --global user.name agent; git config --global user.email agent@example.org
		git config --global credential.helper '!f() { echo username=me; echo "password=$TOKEN"; }; f'`)

	b.sh("", trace+`git clone -q $URL/team.git && cd team && head -c 3000000 /dev/urandom >large && echo hello >small &&
		git add . && git commit -qm "from inside" && git push -q origin HEAD:main`)
	team := filepath.Join(h.dir, "repositories", "team.git")
	if got := h.git("-C", team, "log", "--format=%s %an", "main"); got != "from inside agent\nthe first host\n" {
		t.Errorf("the host's repository has %q", got)
	}
	if got := strings.TrimSpace(h.git("-C", team, "cat-file", "-s", "main:large")); got != "3000000" {
		t.Errorf("the large file has %s bytes on the host", got)
	}

	b.sh("", trace+`git -c credential.helper= -c http.extraHeader="Authorization: Basic $(printf me:$TOKEN | base64 -w0)" clone -q $URL/private.git
		cd private && git commit -q --allow-empty -m "by header" && git push -q origin HEAD:main`)
	if got := h.git("-C", filepath.Join(h.dir, "repositories", "private.git"), "log", "-1", "--format=%s", "main"); got != "by header\n" {
		t.Errorf("the private repository has %q", got)
	}

	for what, helper := range map[string]string{
		"without a credential": "", "with a false one": `!f() { echo username=me; echo password=guessed; }; f`,
	} {
		before := h.refused.Load()
		out := b.sh("", trace+`cd team && git commit -q --allow-empty -m stray && git -c credential.helper= -c credential.helper='`+helper+`' push -q origin HEAD:main 2>&1 && echo PUSHED || true`)
		if strings.Contains(out, "PUSHED") || h.refused.Load() == before {
			t.Errorf("a push %s: %s", what, out)
		}
	}
	if got := h.git("-C", team, "log", "-1", "--format=%s", "main"); got != "from inside\n" {
		t.Errorf("after a push without the credential the branches are %q", got)
	}
	if out := b.sh("", "git ls-remote https://other.example.org/team.git 2>&1 && echo REACHED || true"); strings.Contains(out, "REACHED") {
		t.Errorf("another host was reached: %s", out)
	}

	said := b.sh("", "cat /tmp/trace")
	wrapped := base64.StdEncoding.EncodeToString([]byte("me:" + gitToken))
	if !strings.Contains(said, "x-you-said: Basic ") && !strings.Contains(said, "X-You-Said: Basic ") {
		t.Error("the host did not send the credential back, so the test proves nothing")
	}
	for _, form := range []string{gitToken, wrapped, strings.TrimRight(wrapped, "=")[4:]} {
		if strings.Contains(said, form) {
			t.Errorf("git saw %q", form)
		}
		if found := b.sh("root", "cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n' | grep -c -F -- '"+form+"' || true; grep -rlF -- '"+form+"' /tmp /home /root /etc 2>/dev/null || true"); strings.TrimSpace(found) != "0" {
			t.Errorf("%q is in the sandbox: %s", form, found)
		}
	}
	// A repository that is there when the sandbox is.
	there := bothy.SandboxCreate{
		Network: &bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: []string{gitName}, AllowPorts: []uint16{port}},
		Repo:    "https://" + gitName + ":" + h.port + "/private.git#main",
	}
	if _, err := s.Sandboxes.Create(b.ctx, there); bothy.ErrorCode(err) != bothy.CodeCloneFailed || !strings.Contains(err.Error(), "fatal: ") {
		t.Errorf("a private repository without its token: %v", err)
	}
	there.RepoToken = gitToken
	cloned := s.newBox(t, there)
	if got := cloned.sh("", "cd private && git fetch -q && git log -1 --format=%s && ls -ld . | cut -d' ' -f3"); got != "by header\nuser" {
		t.Errorf("the clone has %q", got)
	}
	private := base64.StdEncoding.EncodeToString([]byte("x-access-token:" + gitToken))
	if found := cloned.sh("root", "grep -rlF -e '"+gitToken+"' -e '"+private+"' /workspace /home /root /etc /proc/[0-9]*/environ 2>/dev/null || true"); strings.TrimSpace(found) != "" {
		t.Errorf("the token is in the sandbox: %s", found)
	}

	put := false
	for _, d := range b.decisions() {
		put = put || d.Allowed && d.Rule == "secret:TOKEN"
	}
	if !put {
		t.Error("the log does not say that the secret was inserted")
	}
}
