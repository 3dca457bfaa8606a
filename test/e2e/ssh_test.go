package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/test/testserver"
)

// openSSH is a computer with OpenSSH and the lines of `bothy ssh-config`.
type openSSH struct {
	*testing.T
	dir, config string
	env         []string
}

func newOpenSSH(t *testing.T, s *server, key string) *openSSH {
	t.Helper()
	program, err := testserver.Program()
	if err != nil {
		t.Fatal(err)
	}
	c := &openSSH{T: t, dir: t.TempDir()}
	c.config = filepath.Join(c.dir, "config")
	c.env = append(os.Environ(), "BOTHY_URL="+s.URL(), "BOTHY_API_KEY="+key, "XDG_CONFIG_HOME="+c.dir)
	cmd := c.command(program, "ssh-config")
	cmd.Stdin = nil
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	// Whatever ssh would ask is an error.
	if err := os.WriteFile(c.config, append(text, "  BatchMode yes\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *openSSH) command(name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	c.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = c.env
	return cmd
}

// run runs a program of OpenSSH and returns its output.
func (c *openSSH) run(want int, stdin, name string, args ...string) string {
	c.Helper()
	if name != "rsync" {
		args = append([]string{"-F", c.config}, args...)
	}
	cmd := c.command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != want {
		c.Fatalf("%s %q: exit code %d, want %d (%v)\n%s", name, args, got, want, err, out)
	}
	return strings.TrimSpace(strings.ReplaceAll(string(out), "\r", ""))
}

func (c *openSSH) file(name string) string { return filepath.Join(c.dir, name) }

func (c *openSSH) want(what, got, want string) {
	c.Helper()
	if got != want {
		c.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestOpenSSH(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{AutoResume: true, Env: map[string]string{"GIVEN": "by the sandbox"}})
	c := newOpenSSH(t, shared, shared.Key)
	host := b.id + ".bothy"

	c.want("a command", c.run(7, "", "ssh", host, `id -un; pwd; echo "$GIVEN"; exit 7`), "user\n/home/user\nby the sandbox")
	c.want("another user", c.run(0, "", "ssh", "root@"+host, "id -un; pwd"), "root\n/root")
	c.want("a signal", c.run(255, "", "ssh", host, "kill -TERM $$"), "")
	c.want("a terminal", c.run(3, "", "ssh", "-tt", "-o", "LogLevel=error", host, "tty; exit 3"), "/dev/pts/0")
	if out := c.run(255, "", "ssh", "nobody-here@"+host, "true"); !strings.Contains(out, `there is no user "nobody-here" in the sandbox`) {
		t.Errorf("an unknown user: %s", out)
	}
	// Editors send a script to a shell without a terminal.
	c.want("a script", c.run(0, "echo $((6*7)); exec 2>&1; tty; true\n", "ssh", "-T", host, "sh"), "42\nnot a tty")
	program, err := testserver.Program()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.command(program, "ssh", b.id, "--", "echo", "two  words").Output()
	if err != nil || string(out) != "two  words\n" {
		t.Errorf("bothy ssh: %q, %v", out, err)
	}

	t.Run("an agent", func(t *testing.T) {
		l, err := net.Listen("unix", c.file("agent"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				conn.Close() // it has no keys
			}
		}()
		c := *c
		c.T, c.env = t, append(c.env, "SSH_AUTH_SOCK="+c.file("agent"))
		c.want("the agent's socket", c.run(0, "", "ssh", "-A", host, "echo [$SSH_AUTH_SOCK]"), "[]")
	})

	t.Run("files", func(t *testing.T) {
		c := *c
		c.T = t
		data := make([]byte, 1<<20)
		_, _ = rand.Read(data)
		if err := os.WriteFile(c.file("data"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		same := func(what, name string) {
			t.Helper()
			if got, err := os.ReadFile(c.file(name)); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: %d bytes, %v", what, len(got), err)
			}
		}
		c.run(0, "", "scp", "-q", c.file("data"), host+":copied")
		c.run(0, "", "scp", "-q", host+":copied", c.file("scp"))
		same("scp", "scp")
		c.run(0, "rename copied moved\nget moved "+c.file("sftp")+"\n", "sftp", "-q", "-b", "-", host)
		same("sftp", "sftp")

		remote := c.bringRsync(host)
		if err := os.Mkdir(c.file("tree"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(c.file("data"), c.file("tree/data")); err != nil {
			t.Fatal(err)
		}
		through := []string{"-a", "--delete", "--rsync-path=" + remote, "-e", "ssh -F " + c.config}
		c.run(0, "", "rsync", append(through, c.file("tree")+"/", host+":tree/")...)
		c.run(0, "", "rsync", append(through, host+":tree/", c.file("back")+"/")...)
		same("rsync", "back/data")
	})

	t.Run("ports", func(t *testing.T) {
		c := *c
		c.T = t
		here := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "from here") }))
		defer here.Close()
		c.run(0, "", "ssh", host, "mkdir www; cd www; echo from inside >page; nohup python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 </dev/null &")
		inside := `for i in $(seq 400); do python3 -c 'from urllib.request import urlopen
urlopen("http://localhost:8000/page"); print(urlopen("http://localhost:9000").read().decode(), flush=True)' 2>/dev/null && exec cat; sleep 0.05; done`
		cmd := c.command("ssh", "-F", c.config, "-o", "ExitOnForwardFailure=yes", "-L", c.file("socket")+":localhost:8000",
			"-R", "9000:"+strings.TrimPrefix(here.URL, "http://"), host, inside)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len("from here\n"))
		if _, err := io.ReadFull(stdout, got); err != nil || string(got) != "from here\n" {
			t.Fatalf("the sandbox reads %q from here, %v", got, err)
		}
		to := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", c.file("socket"))
		}}}
		c.want("a page of the sandbox", fetch(t, to, "http://sandbox/page"), "from inside\n")
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})

	// The server of before was left running, and lives on in a sandbox that was paused.
	if _, err := shared.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	c.want("what was left running", c.run(0, "", "ssh", host, "python3 -c 'from urllib.request import urlopen; print(urlopen(\"http://localhost:8000/page\").read().decode())'"), "from inside")
}

// bringRsync copies this host's rsync into the sandbox, with its libraries, and returns how to run
// it there.
func (c *openSSH) bringRsync(host string) string {
	c.Helper()
	libraries, err := exec.CommandContext(c.Context(), "ldd", "/usr/bin/rsync").Output()
	if err != nil {
		c.Fatal(err)
	}
	const at = "/opt/rsync"
	files, loader := []string{"/usr/bin/rsync"}, ""
	folders := map[string]bool{}
	for _, word := range strings.Fields(string(libraries)) {
		if !filepath.IsAbs(word) {
			continue
		}
		files = append(files, word)
		folders[at+filepath.Dir(word)] = true
		if strings.HasPrefix(filepath.Base(word), "ld-linux") {
			loader = at + word
		}
	}
	packed, err := exec.CommandContext(c.Context(), "tar", append([]string{"-chPf", "-"}, files...)...).Output()
	if err != nil {
		c.Fatal(err)
	}
	c.run(0, string(packed), "ssh", "root@"+host, fmt.Sprintf("mkdir %s && tar -xf - -C %[1]s", at))
	var paths []string
	for f := range folders {
		paths = append(paths, f)
	}
	return fmt.Sprintf("%s --library-path %s %s/usr/bin/rsync", loader, strings.Join(paths, ":"), at)
}

// What may not go on ends, and what has ended says so.
func TestOpenSSHEnds(t *testing.T) {
	t.Parallel()
	b := newBox(t, bothy.SandboxCreate{})
	token, err := shared.Tokens.CreateToken(t.Context(), bothy.TokenCreate{Scopes: []bothy.Scope{bothy.ScopeSandboxesRead, bothy.ScopeSandboxesWrite}})
	if err != nil {
		t.Fatal(err)
	}
	c := newOpenSSH(t, shared, token.Key)
	cmd := c.command("ssh", "-F", c.config, b.id+".bothy", "echo ready; exec sleep 1000")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(stdout, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	if err := shared.Tokens.DeleteToken(t.Context(), token.ID); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 255 {
		t.Errorf("after its key was revoked, ssh ended with %v", err)
	}
	if out := c.run(255, "", "ssh", b.id+".bothy", "true"); !strings.Contains(out, "bothy: ") {
		t.Errorf("with a revoked key: %s", out)
	}

	ended, err := shared.create(t.Context(), bothy.SandboxCreate{})
	if err != nil {
		t.Fatal(err)
	}
	if err := shared.Sandboxes.Terminate(t.Context(), ended.ID); err != nil {
		t.Fatal(err)
	}
	c = newOpenSSH(t, shared, shared.Key)
	if out := c.run(255, "", "ssh", ended.ID+".bothy", "true"); !strings.Contains(out, "bothy: ") || !strings.Contains(out, ended.ID) {
		t.Errorf("a sandbox that has ended: %s", out)
	}
}
