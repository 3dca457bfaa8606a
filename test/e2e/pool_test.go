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

// kernelTemplate is the template whose interpreter is already running when a sandbox starts.
const kernelTemplate = "python-3.12"

// poolServer is a server for one test with its own pool.
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
			t.Fatalf("the log has %d lines like %q, want %d", found, pattern, n)
		}
	}
}

const isReady = `a machine is ready`

// onHost lists the machines on the host.
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

// defaultBox creates a sandbox of the default size.
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
			t.Errorf("it has the processes %+v, %v", list, err)
		}
		for _, line := range []string{
			"cat /etc/machine-id", "hostname", "cat /etc/hostname", "echo $WHO",
			`python3 -c 'import os, random; print(os.urandom(8).hex(), random.random())'`, "cat /run/bothy/generation",
		} {
			out := b.sh("", line)
			if other := seen[line+out]; out == "" || other != "" {
				t.Errorf("%s prints %q in %s and in %s", line, out, other, b.id)
			}
			seen[line+out] = b.id
		}
		if out := b.sh("", "hostname"); out != fmt.Sprint("box-", i) {
			t.Errorf("its host name is %s", out)
		}
		if out := b.sh("", "ls -A /workspace /tmp; ps -eo args | grep -v -e guest -e ps -e grep | wc -l"); !strings.Contains(out, "/workspace:") || len(strings.Fields(out)) > 5 {
			t.Errorf("it has been used before:\n%s", out)
		}
	}

	// Ready sandboxes are removed after a crash, since they belong to nobody; others survive.
	s.logged(t, isReady, 4)
	mine, err := s.AllSandboxes(t.Context(), bothy.StateRunning)
	if err != nil {
		t.Fatal(err)
	}
	before := s.onHost(t)
	if len(before) <= len(mine) {
		t.Errorf("none of the machines %v is a ready one", before)
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
		t.Errorf("of the machines %v, with %d sandboxes, %v are left", before, len(mine), after)
	}
	for _, sb := range mine {
		(&box{t, s, t.Context(), sb.ID}).sh("", "true")
	}
}

// TestWarmKernel runs code in two sandboxes from the same golden snapshot, which has a running
// interpreter.
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
			t.Errorf("a new sandbox has the contexts %+v, %v, so it is not from the snapshot", contexts, err)
		}
		r, err := s.Code.RunCode(t.Context(), b.id, bothy.CodeRequest{Code: code})
		if err != nil || r.Error != nil || len(r.Results) != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		if r.ExecutionCount != 1 {
			t.Errorf("the first execution has the number %d", r.ExecutionCount)
		}
		all[i] = strings.Split(strings.Trim(r.Results[0]["text/plain"], "'"), `\n`)
	}
	for i := range all[0] {
		if all[0][i] == all[1][i] || all[0][i] == "" {
			t.Errorf("both have %q", all[0][i])
		}
	}
	// A sandbox of another size has its own disk and memory sizes, not those of the snapshot.
	b := s.defaultBox(t, bothy.SandboxCreate{Template: kernelTemplate, MemoryMB: 1024, DiskMB: 512})
	if out := b.sh("", `awk '/MemTotal/ {print int($2/1024)}' /proc/meminfo; df -m --output=size / | tail -1`); strings.Join(strings.Fields(out), " ") != "1024 512" {
		t.Errorf("memory and disk are %q", out)
	}
	c := s.defaultBox(t, bothy.SandboxCreate{Template: kernelTemplate})
	if out := c.sh("", `df -m --output=size / | tail -1`); out != fmt.Sprint(bothy.DefaultDiskMB) {
		t.Errorf("the disk of a copy has %s MB", out)
	}
}
