package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
	"github.com/bothy-dev/bothy/engine/cgroup"
)

// serverMemoryMB is what a server may use that is attacked.
const serverMemoryMB = 1024

// attacker is a tenant who may build templates.
type attacker struct {
	*tenant
	builder *client.Client
}

func (s *server) attacker(t *testing.T, project string) *attacker {
	t.Helper()
	x := s.tenant(t, project)
	k, err := s.Tokens.CreateToken(t.Context(), bothy.TokenCreate{Name: "builder", ProjectID: project,
		Scopes: []bothy.Scope{bothy.ScopeSandboxesRead, bothy.ScopeSandboxesWrite, bothy.ScopeTemplatesRead, bothy.ScopeTemplatesWrite}})
	if err != nil {
		t.Fatal(err)
	}
	return &attacker{x, client.New(s.URL(), k.Key)}
}

// build uploads a context, builds a template, and waits for its end, which the server has to reach by itself.
// It returns what the server said against it.
func (x *attacker) build(t *testing.T, upload []byte, dockerfile string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	req := bothy.BuildRequest{Name: "attack", Dockerfile: dockerfile, MemoryMB: 256, DiskMB: 256}
	if upload != nil {
		up, err := x.builder.Builder.UploadContext(ctx, bytes.NewReader(upload))
		if err != nil {
			return err.Error()
		}
		req.ContextID = up.ID
	}
	b, err := x.builder.Builder.StartBuild(ctx, req)
	for ; err == nil && !b.State.Ended(); time.Sleep(100 * time.Millisecond) {
		b, err = x.builder.Builder.Build(ctx, b.ID)
	}
	if err != nil {
		return err.Error()
	}
	return b.Error
}

// archive is a tar of empty files with these names, and of one named x.
func archive(t *testing.T, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range append(names, "x") {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Format: tar.FormatPAX}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Requests of a few kilobytes that each once took all memory of the server, or kept it busy for good. It refuses
// them with a reason within its memory, another tenant's calls succeed meanwhile, and it starts again.
func TestTheServerOutlivesAttacks(t *testing.T) {
	s := stoppedServer(t)
	s.NoPool, s.SameAddress = true, true
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	parent, err := cgroup.NewParent("bothytest-attacked")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := parent.Remove(); err != nil {
			t.Error(err)
		}
	})
	group, err := parent.Create("server", cgroup.Limits{MemoryBytes: serverMemoryMB << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { group.Remove() })
	if err := group.Add(s.PID()); err != nil {
		t.Fatal(err)
	}
	pid := s.PID()
	victim, bad := s.tenant(t, "victim"), s.attacker(t, "bad")
	s.peak(t)

	doubling := "FROM scratch\nARG A=12345678\n" + strings.Repeat("ARG A=$A$A\n", 30)
	from := "FROM " + templateName + "\n"
	for _, attack := range []struct {
		name string
		do   func(t *testing.T) string
		// says is part of the reason that is given; empty if the attack is no error but a large result.
		says string
	}{
		{"a name of 5,000 bytes", func(t *testing.T) string {
			return bad.build(t, archive(t, strings.Repeat("n", 5000)), from+"COPY . /\n")
		}, "in a path"},
		{"a path of 20,000 folders", func(t *testing.T) string {
			return bad.build(t, archive(t, strings.Repeat("d/", 20_000)+"f"), from+"COPY . /\n")
		}, "path"},
		{"an argument that doubles", func(t *testing.T) string { return bad.build(t, nil, doubling) }, "ARG"},
		{"a Dockerfile of 12 MB", func(t *testing.T) string {
			return bad.build(t, nil, from+strings.Repeat("# comment\n", 12<<20/10))
		}, "Dockerfile"},
		{"logins without a key", func(t *testing.T) string { return s.largeLogins(t) }, ""},
		{"many results of code", func(t *testing.T) string {
			r, err := bad.Code.RunCode(t.Context(), bad.id, bothy.CodeRequest{Code: "for i in range(20000): display('')"})
			if err != nil {
				return err.Error()
			}
			return fmt.Sprint(len(r.Results), " results")
		}, ""},
	} {
		t.Run(attack.name, func(t *testing.T) {
			var said string
			victim.lives(t, func() { said = attack.do(t) })
			if !strings.Contains(said, attack.says) || attack.says != "" && said == "" {
				t.Errorf("it says %q, and not %q", said, attack.says)
			}
			if mb := s.peak(t); mb > serverMemoryMB/2 {
				t.Errorf("the server took %d MB", mb)
			}
			if n := group.OOMKills(); n > 0 || s.PID() != pid {
				t.Fatalf("the server was killed: %d", n)
			}
		})
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if status, text := victim.once("POST", "/exec", victim.run("echo here"), nil); status != 200 || !strings.Contains(text, "here") {
		t.Errorf("after a restart: %d %s", status, text)
	}
}

// largeLogins sends 100 logins at once, each of 16 MB.
func (s *server) largeLogins(t *testing.T) string {
	statuses := (&tenant{T: t}).crowd(100, func(int) int {
		body := io.LimitReader(strings.NewReader(`{"key":"`+strings.Repeat("a", 16<<20)), 16<<20)
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL()+"/console/session", body)
		if err != nil {
			t.Error(err)
			return 0
		}
		r.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0 // the server hung up
		}
		res.Body.Close()
		return res.StatusCode
	})
	if statuses[200] > 0 {
		t.Errorf("logins without a key: %v", statuses)
	}
	return fmt.Sprint(statuses)
}
