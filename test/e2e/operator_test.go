package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

// selfSigned writes a certificate for localhost that is its own authority.
func selfSigned(t *testing.T, dir string, serial int64) {
	t.Helper()
	selfSignedFor(t, dir, serial, "localhost")
}

func selfSignedFor(t *testing.T, dir string, serial int64, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "a test"}, DNSNames: []string{name}, IsCA: true,
		BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, text, text, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: cert}, "key.pem": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A server with a certificate uses the certificate's name in its URL, is trusted only by clients that know
// the authority, and loads a new certificate on SIGHUP. Without one it listens on loopback only.
func TestTLS(t *testing.T) {
	s := stoppedServer(t)
	dir := t.TempDir()
	selfSigned(t, dir, 1)
	s.NoPool = true
	s.Settings = "tls:\n  cert_file: " + dir + "/cert.pem\n  key_file: " + dir + "/key.pem\n"
	t.Setenv(client.CAFileEnv, filepath.Join(dir, "cert.pem"))
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(s.URL(), "https://localhost:") {
		t.Errorf("its URL is %s", s.URL())
	}
	sb, err := s.Sandboxes.Create(t.Context(), bothy.SandboxCreate{Template: templateName})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Exec.Exec(t.Context(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "echo hi"}})
	if err != nil || r.Stdout != "hi\n" {
		t.Errorf("ran %+v, %v", r, err)
	}
	term, err := s.Exec.Terminal(t.Context(), sb.ID, bothy.TerminalRequest{Cols: 80, Rows: 24})
	if err != nil {
		t.Errorf("a terminal: %v", err)
	} else {
		term.Close()
	}
	if _, err := client.New(strings.Replace(s.URL(), "https", "http", 1), s.Key).Templates.Templates(t.Context()); err == nil {
		t.Error("it also accepts plain HTTP")
	}
	t.Setenv(client.CAFileEnv, "")
	if _, err := client.New(s.URL(), s.Key).Templates.Templates(t.Context()); bothy.ErrorCode(err) != client.CodeUnreachable ||
		!strings.Contains(bothy.AsError(err).Hint, client.CAFileEnv) {
		t.Errorf("a client that does not know the authority: %v", err)
	}
	selfSigned(t, dir, 2)
	if err := s.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new certificate is shown", func() bool {
		c, err := tls.Dial("tcp", s.Address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return false
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64() == 2
	})
	t.Setenv(client.CAFileEnv, filepath.Join(dir, "cert.pem"))
	s.Client = client.New(s.URL(), s.Key)

	open := stoppedServer(t)
	open.Args = []string{"--listen", "0.0.0.0:0"}
	if err := open.Start(); err == nil {
		t.Error("it listens on other addresses than loopback without TLS")
		_ = open.Kill()
	}
}

// Stopping the server loses neither running commands nor their audit records, and requests for new
// sandboxes are refused with a time to retry.
func TestStoppingFinishesRunningCommands(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	sb, err := s.Sandboxes.Create(t.Context(), bothy.SandboxCreate{Template: templateName})
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		r   *bothy.ExecResult
		err error
	}
	done := make(chan result, 1)
	started := make(chan struct{})
	go func() {
		var out result
		out.r = &bothy.ExecResult{}
		out.err = s.Exec.ExecStream(context.Background(), sb.ID, bothy.ExecRequest{Command: bothy.Command{
			Line: "echo begun; while [ ! -e /tmp/go ]; do sleep 0.02; done; echo finished",
		}}, func(e bothy.ExecEvent) error {
			if out.r.Stdout == "" && strings.Contains(e.Data, "begun") {
				close(started)
			}
			out.r.Stdout += e.Data
			return nil
		})
		done <- out
	}()
	<-started
	if err := s.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a create is refused", func() bool {
		_, err := s.Sandboxes.Create(t.Context(), bothy.SandboxCreate{Template: templateName})
		if bothy.ErrorCode(err) == bothy.CodeShuttingDown && bothy.AsError(err).RetryAfter == 0 {
			t.Error("there is no Retry-After")
		}
		return bothy.ErrorCode(err) == bothy.CodeShuttingDown
	})
	if _, err := s.Exec.Exec(t.Context(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "touch /tmp/go"}}); err != nil {
		t.Errorf("a command meanwhile: %v", err)
	}
	if out := <-done; out.err != nil || !strings.Contains(out.r.Stdout, "finished") {
		t.Errorf("the running command: %+v, %v", out.r, out.err)
	}
	if err := s.Ends(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := s.Audit.Audit(t.Context(), bothy.AuditFilter{SandboxID: sb.ID, Oldest: true})
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, r := range p.Items {
		commands = append(commands, r.Action+" "+r.Command)
	}
	if all := strings.Join(commands, "\n"); !strings.Contains(all, "exec echo begun") || !strings.Contains(all, "exec touch /tmp/go") || !strings.Contains(all, "create-sandbox") {
		t.Errorf("the audit records are: %s", all)
	}
	c, err := s.Audit.CheckAudit(t.Context(), 0, "")
	if err != nil || !c.OK || c.Records < 4 {
		t.Errorf("the audit chain: %+v, %v", c, err)
	}
}

// eventually waits until something is so. It asks less often with time, to leave processor time to the servers.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	pause := 20 * time.Millisecond
	for deadline := time.Now().Add(hangs); !done(); pause = min(pause*5/4, 200*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it did not happen: %s", what)
		}
		time.Sleep(pause)
	}
}
