package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// kernelTemplate is the one whose interpreter runs from the start.
const kernelTemplate = "python-3.12"

// poolServer is a server of one test with a pool of its own.
func poolServer(t *testing.T, pool string) *server {
	t.Helper()
	s := stoppedServer(t)
	s.Settings = "pool: {" + pool + ", min_free_memory_mb: 0}\n"
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// logged waits until the log has n lines that match.
func (s *server) logged(t *testing.T, pattern string, n int) {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(hangs); ; time.Sleep(20 * time.Millisecond) {
		found := 0
		for _, l := range s.Log() {
			if re.MatchString(l) {
				found++
			}
		}
		if found >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the log has %d lines like %q instead of %d", found, pattern, n)
		}
	}
}

const isReady = `a machine is ready`

// onHost lists the machines that there are, as the host sees them.
func (s *server) onHost(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.Home, "machines"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// create asks for a sandbox of the default size.
func (s *server) defaultBox(t *testing.T, req bothy.SandboxCreate) *box {
	t.Helper()
	sb, err := s.Sandboxes.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return &box{t, s, t.Context(), sb.ID}
}

func TestPool(t *testing.T) {
	t.Parallel()
	s := poolServer(t, "templates: ["+templateName+"], ready: 2, ready_max: 2, spares: 1, golden_max: 0")
	s.logged(t, isReady, 2)

	seen := map[string]string{}
	for i := range 3 {
		b := s.defaultBox(t, bothy.SandboxCreate{Template: templateName, Name: fmt.Sprint("box-", i), CPU: 0.5, Env: map[string]string{"WHO": fmt.Sprint(i)}})
		if list, err := s.Exec.Processes(t.Context(), b.id); err != nil || len(list) > 0 {
			t.Errorf("somebody has run %+v in it, %v", list, err)
		}
		for _, line := range []string{
			"cat /etc/machine-id", "hostname", "cat /etc/hostname", "echo $WHO",
			`python3 -c 'import os, random; print(os.urandom(8).hex(), random.random())'`, "cat /run/bothy/generation",
		} {
			out := b.sh("", line)
			if other := seen[line+out]; out == "" || other != "" {
				t.Errorf("%s says %q in %s and in %s", line, out, other, b.id)
			}
			seen[line+out] = b.id
		}
		if out := b.sh("", "hostname"); out != fmt.Sprint("box-", i) {
			t.Errorf("it calls itself %s", out)
		}
		if out := b.sh("", "ls -A /workspace /tmp; ps -eo args | grep -v -e guest -e ps -e grep | wc -l"); !strings.Contains(out, "/workspace:") || len(strings.Fields(out)) > 5 {
			t.Errorf("somebody has been in it before:\n%s", out)
		}
	}

	// What waited when the server was killed is nobody's, and goes; what was
	// somebody's lives.
	s.logged(t, isReady, 4)
	mine, err := s.AllSandboxes(t.Context(), bothy.StateRunning)
	if err != nil {
		t.Fatal(err)
	}
	before := s.onHost(t)
	if len(before) <= len(mine) {
		t.Errorf("of %v nobody waited", before)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	s.ForgetLog()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	s.logged(t, isReady, 2)
	after := s.onHost(t)
	kept := 0
	for _, name := range before {
		if slices.Contains(after, name) {
			kept++
		}
	}
	if kept != len(mine) {
		t.Errorf("of %v, which held %d sandboxes, %v is left", before, len(mine), after)
	}
	for _, sb := range mine {
		(&box{t, s, t.Context(), sb.ID}).sh("", "true")
	}
}

// TestWarmKernel runs code in two sandboxes that were made from the same golden
// snapshot, in which the interpreter ran already.
func TestWarmKernel(t *testing.T) {
	t.Parallel()
	s := poolServer(t, "templates: ["+kernelTemplate+"], ready: 0, ready_max: 0, spares: 1, golden_max: 2")
	if _, err := s.Templates.Template(t.Context(), kernelTemplate); err != nil {
		t.Fatal(err)
	}
	s.logged(t, "golden snapshot is ready", 1)
	const code = `
import hashlib, os, random, secrets, socket, ssl, tempfile, uuid
import numpy
who = (random.random(), numpy.random.rand(), secrets.token_hex(8), ssl.RAND_bytes(8).hex(), uuid.uuid4().hex, uuid.uuid1().hex,
	next(tempfile._get_candidate_names()), socket.gethostname(), open("/etc/machine-id").read().strip(), os.environ["WHO"])
"\n".join(map(str, who))`
	var all [2][]string
	for i := range all {
		b := s.defaultBox(t, bothy.SandboxCreate{Template: kernelTemplate, Env: map[string]string{"WHO": fmt.Sprint("number ", i)}})
		contexts, err := s.Code.Contexts(t.Context(), b.id)
		if err != nil || len(contexts) != 1 {
			t.Errorf("a new sandbox has the contexts %+v, %v: it was not made from the snapshot", contexts, err)
		}
		r, err := s.Code.RunCode(t.Context(), b.id, bothy.CodeRequest{Code: code})
		if err != nil || r.Error != nil || len(r.Results) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		if r.ExecutionCount != 1 {
			t.Errorf("the first piece of code is number %d", r.ExecutionCount)
		}
		all[i] = strings.Split(strings.Trim(r.Results[0]["text/plain"], "'"), `\n`)
	}
	for i := range all[0] {
		if all[0][i] == all[1][i] || all[0][i] == "" {
			t.Errorf("both have %q", all[0][i])
		}
	}
	// Another size has its own disk and memory, not those of the snapshot.
	b := s.defaultBox(t, bothy.SandboxCreate{Template: kernelTemplate, MemoryMB: 1024, DiskMB: 512})
	if out := b.sh("", `awk '/MemTotal/ {print int($2/1024)}' /proc/meminfo; df -m --output=size / | tail -1`); strings.Join(strings.Fields(out), " ") != "1024 512" {
		t.Errorf("memory and disk are %q", out)
	}
	c := s.defaultBox(t, bothy.SandboxCreate{Template: kernelTemplate})
	if out := c.sh("", `df -m --output=size / | tail -1`); out != fmt.Sprint(bothy.DefaultDiskMB) {
		t.Errorf("the disk of a copy has %s MB", out)
	}
}
