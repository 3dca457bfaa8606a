package e2e

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/test/testserver"
)

// TestAPulledTemplateStartsSandboxes takes a template from one folder to another by a file: before its server
// starts, and while it runs.
func TestAPulledTemplateStartsSandboxes(t *testing.T) {
	t.Parallel()
	prepared, err := testserver.Templates()
	if err != nil {
		t.Fatal(err)
	}
	program, err := testserver.Program()
	if err != nil {
		t.Fatal(err)
	}
	s := stoppedServer(t)
	s.NoPool = true
	if err := os.RemoveAll(s.TemplatesDir); err != nil {
		t.Fatal(err)
	}
	key, public := keyFiles(t)
	file := filepath.Join(t.TempDir(), "template.tar")
	host := func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.Command(program, append([]string{"template"}, args...)...)
		cmd.Env = append(os.Environ(), "BOTHY_TEMPLATES="+dir, "BOTHY_HOME="+s.Home)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("bothy template %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	host(prepared, "export", testserver.Template, file, "--sign", key)
	host(s.TemplatesDir, "pull", file, "--key", public)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	works := func() {
		t.Helper()
		b := s.newBox(t, bothy.SandboxCreate{Template: testserver.Template})
		if out := b.sh("", "python -c 'print(6*7)'"); strings.TrimSpace(out) != "42" {
			t.Errorf("it said %q", out)
		}
		if err := s.Sandboxes.Terminate(t.Context(), b.id); err != nil {
			t.Fatal(err)
		}
	}
	works()
	if out := host(s.TemplatesDir, "pull", file, "--key", public); !strings.Contains(out, "here already") {
		t.Errorf("a second pull said %s", out)
	}
	if err := s.Templates.RemoveTemplate(t.Context(), testserver.Template); err != nil {
		t.Fatal(err)
	}
	host(s.TemplatesDir, "pull", file, "--key", public)
	works()
}

// keyFiles are a private key and its public half.
func keyFiles(t *testing.T) (private, public string) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte, err error) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err == nil {
			err = os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	der, err := x509.MarshalPKCS8PrivateKey(priv)
	private = write("private", "PRIVATE KEY", der, err)
	der, err = x509.MarshalPKIXPublicKey(pub)
	return private, write("public", "PUBLIC KEY", der, err)
}
