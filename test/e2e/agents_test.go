package e2e

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/agents"
	"github.com/bothy-dev/bothy/agents/agentstest"
	"github.com/bothy-dev/bothy/test/testserver"
)

const agentsEnvironment, agentsKey = "env_test", "key-of-the-environment"

// agentsWorld is a server attached to an environment of managed agents.
type agentsWorld struct {
	*testing.T
	*server
	queue *agentstest.Service
	id    string
}

func newAgentsWorld(t *testing.T, lease time.Duration) *agentsWorld {
	t.Helper()
	return newAgentsWorldWith(t, lease, "")
}

func newAgentsWorldWith(t *testing.T, lease time.Duration, settings string) *agentsWorld {
	t.Helper()
	w := &agentsWorld{T: t, server: stoppedServer(t), queue: agentstest.New(agentsEnvironment, agentsKey, lease)}
	w.NoPool, w.Settings = true, "webhooks: {allow: [127.0.0.1/32]}\n"+settings
	w.must(w.Start())
	w.attach(agentsKey)
	t.Cleanup(func() {
		for _, f := range w.queue.Faults() {
			t.Errorf("the queue reports: %s", f)
		}
		if t.Failed() {
			w.ShowLog(t.Output())
		}
	})
	t.Cleanup(w.queue.Close)
	stop := time.AfterFunc(hangs, w.queue.Close) // so that no call waits forever
	t.Cleanup(func() { stop.Stop() })
	return w
}

func (w *agentsWorld) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *agentsWorld) attach(key string) {
	w.Helper()
	a, err := w.Agents.AttachAgents(w.Context(), bothy.AgentAttach{
		Environment: agentsEnvironment, Key: key, URL: w.queue.URL, Sandbox: &bothy.SandboxCreate{Template: templateName, IdleSeconds: 1},
		Tools: []bothy.AgentTool{{Name: "shout", Command: "tr a-z A-Z"}, {Name: "once", Command: "echo once >> log; cat log"}},
	})
	w.must(err)
	w.id = a.ID
}

// sandbox returns the id of a session's sandbox, or "".
func (w *agentsWorld) sandbox(session string) string {
	w.Helper()
	a, err := w.Agents.AgentAttachment(w.Context(), w.id)
	w.must(err)
	for _, s := range a.Sessions {
		if s.ID == session {
			return s.SandboxID
		}
	}
	return ""
}

func (w *agentsWorld) want(got agentstest.Result, text string, failed bool) {
	w.Helper()
	if got.Text != text || got.IsError != failed {
		w.Errorf("got %q, failed %v; want %q, failed %v", got.Text, got.IsError, text, failed)
	}
}

func (w *agentsWorld) wantPart(got agentstest.Result, part string, failed bool) {
	w.Helper()
	if !strings.Contains(got.Text, part) || got.IsError != failed {
		w.Errorf("got %.500q, failed %v; want a part %q, failed %v", got.Text, got.IsError, part, failed)
	}
}

type in = map[string]any

// A call is run once and answered once, whichever step the server is killed at.
func TestAgentsSurviveAtEachStep(t *testing.T) {
	t.Parallel()
	w := newAgentsWorld(t, 2*time.Second)
	bash := func(s *agentstest.Session) string {
		return s.Start("bash", in{"command": "echo once >> log; cat log"})
	}
	for _, c := range []struct {
		step string
		call func(*agentstest.Session) string
		want string
	}{
		{"agents.claimed", bash, "once\n"}, {"agents.stored", bash, "once\n"}, {"agents.created", bash, "once\n"}, {"agents.noted", bash, "once\n"},
		{"agents.given", bash, "once\n"}, {"agents.ran", bash, "once\n"}, {"agents.kept", bash, "once\n"},
		{"agents.edited", func(s *agentstest.Session) string {
			s.Call("write", in{"file_path": "log", "content": "on\n"})
			return s.Start("edit", in{"file_path": "log", "old_string": "on", "new_string": "once"})
		}, "edited log"},
		{"agents.started", func(s *agentstest.Session) string { return s.StartCustom("once", in{}) }, "once\n"},
		{"agents.rested", nil, ""}, {"agents.returned", nil, ""},
	} {
		w.must(w.Stop())
		w.must(w.Start(c.step + "=kill"))
		s := w.queue.Session(nil)
		id := ""
		if c.call != nil {
			id = c.call(s)
		} else {
			id, c.want = bash(s), "once\n"
			w.want(s.Wait(id), c.want, false)
			s.Idle()
		}
		w.must(w.Dies())
		w.must(w.Start())
		if got := s.Wait(id); got.Text != c.want || got.IsError || s.Posted(id) != 1 {
			t.Errorf("%s: got %+v, posted %d times", c.step, got, s.Posted(id))
		}
		if got := s.Call("read", in{"file_path": "log"}); got.Text != "once\n" {
			t.Errorf("%s: the file is %+v", c.step, got)
		}
		page, err := w.Sandboxes.List(t.Context(), bothy.SandboxFilter{States: bothy.LiveStates, Metadata: map[string]string{agents.LabelSession: s.ID}})
		if err != nil || len(page.Items) != 1 {
			t.Errorf("%s: the session has %d sandboxes, %v", c.step, len(page.Items), err)
		}
		s.End()
		w.queue.AwaitRest(s.ID)
	}
}

func TestAgentsTools(t *testing.T) {
	t.Parallel()
	w := newAgentsWorld(t, 10*time.Second)
	s := w.queue.Session(nil)

	// A session has one shell, which keeps its directory and variables.
	w.want(s.Call("bash", in{"command": "cd /tmp && export A='ü b'"}), "(no output)", false)
	w.want(s.Call("bash", in{"command": "echo \"$PWD $A\"; echo err >&2"}), "/tmp ü b\nerr\n", false)
	w.want(s.Call("bash", in{"command": "printf half; false"}), "half\nexit code: 1", true)
	w.wantPart(s.Call("bash", in{"command": "if then"}), "syntax error", true)
	w.want(s.Call("bash", in{"command": "cat; echo $A"}), "ü b\n", false)
	w.wantPart(s.Call("bash", in{"command": "echo before; sleep 60", "timeout_ms": 1000}), "before\n\n[timed out]\nsession restarted after timeout", true)
	w.want(s.Call("bash", in{"command": "echo \"$A.\""}), ".\n", false)
	w.wantPart(s.Call("bash", in{"command": "echo last; exit 3"}), "last\n\nbash session terminated", true)
	w.want(s.Call("bash", in{"command": "B=1; pwd"}), "/workspace\n", false)
	w.want(s.Call("bash", in{"restart": true}), "bash session restarted", false)
	w.want(s.Call("bash", in{"command": "echo \"$B.\""}), ".\n", false)
	w.wantPart(s.Call("bash", in{}), "command is required", true)
	long := s.Call("bash", in{"command": "seq 1 100000"})
	if !strings.HasPrefix(long.Text, "[output truncated]\n") || !strings.HasSuffix(long.Text, "99999\n100000\n") || len(long.Text) > 100<<10+20 || long.IsError {
		t.Errorf("long output: %d bytes, %.60q…", len(long.Text), long.Text)
	}
	w.want(s.Call("bash", in{"command": `printf 'a\xff\0b\e[31mc\r\n'`}), "a\uFFFD\uFFFDbc\n", false)
	// The key stays with the host, and the network is off.
	w.want(s.Call("bash", in{"command": "env | grep -c key-of-the"}), "0\n\nexit code: 1", true)

	// Files.
	const name = "a folder/Übersicht ☂.txt"
	w.want(s.Call("write", in{"file_path": name, "content": "one\ntwo\nthree\n"}), "wrote 14 bytes to "+name, false)
	w.want(s.Call("read", in{"file_path": name}), "one\ntwo\nthree\n", false)
	w.want(s.Call("read", in{"file_path": "/workspace/" + name, "view_range": []int{2, 2}}), "two", false)
	w.want(s.Call("read", in{"file_path": name, "view_range": []int{2, -1}}), "two\nthree\n", false)
	w.wantPart(s.Call("read", in{"file_path": name, "view_range": []int{9, 10}}), "has no line 9", true)
	w.want(s.Call("edit", in{"file_path": name, "old_string": "two", "new_string": "2"}), "edited "+name+" (1 replacement(s))", false)
	w.wantPart(s.Call("edit", in{"file_path": name, "old_string": "e", "new_string": "E"}), "appears 3 times", true)
	w.want(s.Call("edit", in{"file_path": name, "old_string": "e", "new_string": "E", "replace_all": true}), "edited "+name+" (3 replacement(s))", false)
	w.want(s.Call("bash", in{"command": "cat '" + name + "'"}), "onE\n2\nthrEE\n", false)
	w.wantPart(s.Call("edit", in{"file_path": name, "old_string": "x", "new_string": "y"}), "not found", true)
	w.wantPart(s.Call("read", in{"file_path": "none"}), "none", true)
	w.wantPart(s.Call("read", in{"file_path": "a folder"}), "not a regular file", true)
	w.wantPart(s.Call("write", in{"content": "x"}), "file_path is required", true)

	// Results other than text.
	s.Call("bash", in{"command": `printf '\x89PNG\r\n\x1a\nrest' > p.png; printf '%%PDF-1.4 rest' > d.pdf; printf 'a\0b' > bin; printf 'a\xe9' > latin; head -c 300000 /dev/zero | tr '\0' a > big; seq 100000 > lines`})
	if got := s.Call("read", in{"file_path": "p.png"}); got.Files["image/png"] != base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\nrest")) {
		t.Errorf("an image: %+v", got)
	}
	if got := s.Call("read", in{"file_path": "d.pdf"}); got.Files["application/pdf"] != base64.StdEncoding.EncodeToString([]byte("%PDF-1.4 rest")) {
		t.Errorf("a PDF: %+v", got)
	}
	w.wantPart(s.Call("read", in{"file_path": "bin"}), "binary file (application/octet-stream, 3 bytes)", true)
	w.wantPart(s.Call("read", in{"file_path": "latin"}), "not UTF-8", true)
	w.wantPart(s.Call("read", in{"file_path": "big"}), "exceeds 262144-byte limit", true)
	w.wantPart(s.Call("read", in{"file_path": "big", "view_range": []int{1, 1}}), "exceeds 262144-byte limit", true)
	w.want(s.Call("read", in{"file_path": "lines", "view_range": []int{99999, 100000}}), "99999\n100000", false)

	// Searches.
	w.want(s.Call("glob", in{"pattern": "**/*.txt"}), "/workspace/"+name, false)
	w.want(s.Call("glob", in{"pattern": "*.txt", "path": "a folder"}), "/workspace/"+name, false)
	w.want(s.Call("glob", in{"pattern": "*.none"}), "no matches", false)
	w.wantPart(s.Call("glob", in{"pattern": "../*"}), "must be relative", true)
	w.wantPart(s.Call("glob", in{"pattern": "*", "path": "none"}), "none", true)
	w.want(s.Call("grep", in{"pattern": `^\d$`, "path": "a folder"}), "/workspace/"+name+":2:2", false)
	w.want(s.Call("grep", in{"pattern": "nothing like it"}), "no matches", false)
	w.wantPart(s.Call("grep", in{"pattern": "("}), "grep: ", true)
	if got := s.Call("grep", in{"pattern": "1"}); !strings.HasSuffix(got.Text, "\n[output truncated]") || len(got.Text) > 100<<10+20 {
		t.Errorf("many lines: %d bytes, …%q", len(got.Text), got.Text[max(0, len(got.Text)-40):])
	}

	// A tool of the agent's own.
	w.want(s.Wait(s.StartCustom("shout", in{"say": "ü b"})), `{"SAY":"ü B"}`, false)

	// Concurrent sessions have a sandbox each.
	other := w.queue.Session(nil)
	w.want(other.Call("bash", in{"command": "ls"}), "(no output)", false)
	if a, b := w.sandbox(s.ID), w.sandbox(other.ID); a == "" || b == "" || a == b {
		t.Errorf("the sandboxes are %q and %q", a, b)
	}
	// The sandbox ends with its session.
	box := w.sandbox(other.ID)
	other.End()
	w.queue.AwaitRest(other.ID)
	w.wantEnded(box)
	// The service hears of the end before the session is forgotten here.
	eventually(t, "the session that ended has no sandbox", func() bool { return w.sandbox(other.ID) == "" })
}

func (w *agentsWorld) wantEnded(id string) {
	w.Helper()
	box, err := w.Sandboxes.Get(w.Context(), id)
	w.must(err)
	if !box.State.Ended() {
		w.Errorf("the sandbox is %s", box.State)
	}
}

func TestAgentsAreKept(t *testing.T) {
	t.Parallel()
	w := newAgentsWorld(t, 3*time.Second)
	s := w.queue.Session(nil)
	w.want(s.Call("bash", in{"command": "A=kept; echo 1"}), "1\n", false)

	// A command that is running when the server is killed runs once, and its result is posted.
	id := s.Start("bash", in{"command": "echo begun >> log; while [ ! -e go ]; do sleep 0.1; done; echo $A done; seq 50000 | tail -1"})
	w.awaitFile(w.sandbox(s.ID), "/workspace/log")
	box := w.sandbox(s.ID)
	w.must(w.Kill())
	w.must(w.Start())
	w.touch(box, "go")
	w.want(s.Wait(id), "kept done\n50000\n", false)
	if n := s.Posted(id); n != 1 {
		t.Errorf("the result was posted %d times", n)
	}
	w.want(s.Call("bash", in{"command": "cat log; echo $A"}), "begun\nkept\n", false)

	// The same for a server that is stopped.
	id = s.Start("bash", in{"command": "echo again > log2; while [ ! -e go2 ]; do sleep 0.1; done; cat log log2"})
	w.awaitFile(box, "/workspace/log2")
	w.must(w.Stop())
	w.must(w.Start())
	w.touch(box, "go2")
	w.want(s.Wait(id), "begun\nagain\n", false)
	if w.sandbox(s.ID) != box {
		t.Error("the session has another sandbox")
	}
}

// touch makes an empty file in a sandbox, which may be about to pause because nothing has used it for a second.
func (w *agentsWorld) touch(sandbox, path string) {
	w.Helper()
	eventually(w.T, "there is "+path, func() bool {
		_, err := w.Exec.Exec(w.Context(), sandbox, bothy.ExecRequest{Command: bothy.Command{Args: []string{"touch", path}}})
		if err != nil && bothy.ErrorCode(err) != bothy.CodeSandboxPaused {
			w.Fatal(err)
		}
		return err == nil
	})
}

// awaitFile waits until there is a file in a sandbox.
func (w *agentsWorld) awaitFile(sandbox, path string) {
	w.Helper()
	line := fmt.Sprintf("until [ -e %s ]; do sleep 0.05; done", path)
	if res, err := w.Exec.Exec(w.Context(), sandbox, bothy.ExecRequest{Command: bothy.Command{Line: line}, TimeoutSeconds: 60}); err != nil || res.ExitCode != 0 {
		w.Fatalf("%+v, %v", res, err)
	}
}

func (w *agentsWorld) awaitState(sandbox string, want bothy.State) {
	w.Helper()
	for {
		box, err := w.Sandboxes.Get(w.Context(), sandbox)
		w.must(err)
		if box.State == want {
			return
		}
		if box.State.Ended() {
			w.Fatalf("the sandbox is %s instead of %s", box.State, want)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// A result that was not posted when the server was killed is posted after the restart, without
// running the call again.
func TestAgentsResultsAreKept(t *testing.T) {
	t.Parallel()
	w := newAgentsWorld(t, 3*time.Second)
	s := w.queue.Session(nil)
	w.queue.Busy(true)
	id := s.Start("bash", in{"command": "echo once | tee -a log"})
	w.queue.AwaitRefused()
	w.must(w.Kill())
	w.queue.Busy(false)
	w.must(w.Start())
	w.want(s.Wait(id), "once\n", false)
	w.want(s.Call("read", in{"file_path": "log"}), "once\n", false)
	w.queue.Busy(true)
	id = s.Start("edit", in{"file_path": "log", "old_string": "once", "new_string": "once, once"})
	w.queue.AwaitRefused()
	w.must(w.Kill())
	w.queue.Busy(false)
	w.must(w.Start())
	w.want(s.Wait(id), "edited log (1 replacement(s))", false)
	w.want(s.Call("read", in{"file_path": "log"}), "once, once\n", false)
	w.queue.Busy(true)
	id = s.StartCustom("shout", in{"a": 1})
	w.queue.AwaitRefused()
	w.must(w.Kill())
	w.queue.Busy(false)
	w.must(w.Start())
	w.want(s.Wait(id), `{"A":1}`, false)
}

// The sandbox of an idle session is paused, and resumed unchanged when there is more work.
func TestAgentsSandboxIsPaused(t *testing.T) {
	t.Parallel()
	w := newAgentsWorld(t, 10*time.Second)
	s := w.queue.Session(nil)
	w.want(s.Call("bash", in{"command": "A=1; echo 2 > two; sleep 1000 & true"}), "(no output)", false)
	s.Idle()
	w.queue.AwaitRest(s.ID)
	box := w.sandbox(s.ID)
	w.awaitState(box, bothy.StatePaused)
	w.want(s.Call("bash", in{"command": "echo $A; cat two; jobs -r | wc -l"}), "1\n2\n1\n", false)
	if got := w.sandbox(s.ID); got != box {
		t.Errorf("the session has the sandbox %s instead of %s", got, box)
	}

	// A sandbox that was removed is replaced, and the agent is told.
	w.must(w.Sandboxes.Terminate(t.Context(), box))
	w.wantPart(s.Call("bash", in{"command": "echo 3"}), "ended", true)
	w.wantPart(s.Call("bash", in{"command": "echo 3"}), "its files are gone", true)
	w.want(s.Call("bash", in{"command": "echo 3; ls"}), "3\n", false)

	// When the environment is detached, the sandbox is paused and the work is returned to the queue.
	box = w.sandbox(s.ID)
	w.must(w.Agents.DetachAgents(t.Context(), w.id))
	w.queue.AwaitRest(s.ID)
	w.awaitState(box, bothy.StatePaused)
	if _, err := w.Agents.AgentAttachment(t.Context(), w.id); bothy.ErrorCode(err) != bothy.CodeNotFound {
		t.Error(err)
	}
}

// A sandbox that has used up its budget at the server's rates is paused, and the agent is told. It
// continues when the budget is raised.
func TestAgentsBudgetIsUsedUp(t *testing.T) {
	t.Parallel()
	w := newAgentsWorldWith(t, 10*time.Second, "rates: {vcpu_hour: 720}\n") // 0.2 a second
	attach := func(budget float64) {
		t.Helper()
		_, err := w.Agents.AttachAgents(t.Context(), bothy.AgentAttach{
			Environment: agentsEnvironment, Key: agentsKey, URL: w.queue.URL, Sandbox: &bothy.SandboxCreate{Template: templateName, Budget: budget},
		})
		w.must(err)
	}
	attach(0.3)
	s := w.queue.Session(nil)
	w.want(s.Call("bash", in{"command": "echo 1 > file; echo 1"}), "1\n", false)
	box := w.sandbox(s.ID)
	w.awaitState(box, bothy.StatePaused)
	w.wantPart(s.Call("bash", in{"command": "cat file"}), "budget", true)
	w.wantPart(s.Call("read", in{"file_path": "file"}), "budget", true)
	_, err := w.Sandboxes.Update(t.Context(), box, bothy.SandboxUpdate{Budget: new(1000.0)})
	w.must(err)
	w.want(s.Call("bash", in{"command": "cat file"}), "1\n", false)
	if got := w.sandbox(s.ID); got != box {
		t.Errorf("the session has the sandbox %s instead of %s", got, box)
	}
}

// Attaching fails if a sandbox could never be created as requested.
func TestAgentsAttachIsChecked(t *testing.T) {
	t.Parallel()
	w := newAgentsWorld(t, 10*time.Second)
	for code, box := range map[bothy.Code]bothy.SandboxCreate{
		bothy.CodeTemplateNotFound: {Template: "no-such-template"},
		bothy.CodeSnapshotNotFound: {SnapshotID: "snpnone"},
		bothy.CodeInvalid:          {Template: templateName, MemoryMB: 1},
	} {
		_, err := w.Agents.AttachAgents(t.Context(), bothy.AgentAttach{Environment: "env_other", Key: agentsKey, URL: w.queue.URL, Sandbox: &box})
		if bothy.ErrorCode(err) != code {
			t.Errorf("%+v: %v instead of %s", box, err, code)
		}
	}
	all, err := w.Agents.AgentAttachments(t.Context())
	if err != nil || len(all) != 1 {
		t.Errorf("%d attachments, %v", len(all), err)
	}
}

// waitsForGo is a command that ends once there is a file named go, and leaves a file as proof.
const waitsForGo = "touch begun; until [ -e go ]; do sleep 0.1; done; touch late"

// Work ends at once when another worker takes its lease, and its result is not posted.
func TestAgentsLeaseIsLost(t *testing.T) {
	t.Parallel()
	w := newAgentsWorld(t, 4*time.Second)
	s := w.queue.Session(nil)
	id := s.Start("bash", in{"command": waitsForGo})
	for w.sandbox(s.ID) == "" {
		time.Sleep(10 * time.Millisecond)
	}
	box := w.sandbox(s.ID)
	w.awaitFile(box, "/workspace/begun")
	w.queue.Steal(s.ID)
	for a, err := w.Agents.AgentAttachment(t.Context(), w.id); a.Sessions[0].Working; a, err = w.Agents.AgentAttachment(t.Context(), w.id) {
		w.must(err)
		time.Sleep(10 * time.Millisecond)
	}
	w.awaitState(box, bothy.StatePaused)
	if n := s.Posted(id); n != 0 {
		t.Errorf("the worker that lost the lease posted the result %d times", n)
	}
	if !w.queue.Working(s.ID) {
		t.Error("the other worker's work was stopped")
	}
	if _, err := w.Snapshots.Resume(t.Context(), box, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	res, err := w.Exec.Exec(t.Context(), box, bothy.ExecRequest{Command: bothy.Command{Line: "touch go; sleep 3; ls"}})
	w.must(err)
	if res.Stdout != "begun\ngo\n" {
		t.Errorf("the command kept running: %q", res.Stdout)
	}
}

// Revoking a key stops the work, and attaching with another key continues it.
func TestAgentsKeyIsRevoked(t *testing.T) {
	t.Parallel()
	w := newAgentsWorld(t, 3*time.Second)
	s := w.queue.Session(nil)
	w.want(s.Call("bash", in{"command": "echo 1 > file; echo 1"}), "1\n", false)
	box := w.sandbox(s.ID)
	w.queue.Revoke("another-key")
	w.awaitState(box, bothy.StatePaused)
	a, err := w.Agents.AgentAttachment(t.Context(), agentsEnvironment)
	w.must(err)
	for a.State != bothy.AgentsFailing {
		time.Sleep(50 * time.Millisecond)
		a, err = w.Agents.AgentAttachment(t.Context(), agentsEnvironment)
		w.must(err)
	}
	if !strings.Contains(a.LastError, "refuses the environment key") || strings.Contains(fmt.Sprint(a), agentsKey) {
		t.Errorf("%+v", a)
	}
	id := w.id
	w.attach("another-key")
	if w.id != id {
		t.Errorf("the attachment is %s instead of %s", w.id, id)
	}
	w.want(s.Call("bash", in{"command": "cat file"}), "1\n", false)
	if got := w.sandbox(s.ID); got != box {
		t.Errorf("the session has the sandbox %s instead of %s", got, box)
	}
}

// A command that the user interrupts is killed.
func TestAgentsInterrupt(t *testing.T) {
	t.Parallel()
	w := newAgentsWorld(t, 10*time.Second)
	s := w.queue.Session(nil)
	id := s.Start("bash", in{"command": waitsForGo})
	for w.sandbox(s.ID) == "" {
		time.Sleep(10 * time.Millisecond)
	}
	w.awaitFile(w.sandbox(s.ID), "/workspace/begun")
	s.Interrupt()
	w.want(s.Call("bash", in{"command": "touch go; sleep 3; ls"}), "begun\ngo\n", false)
	if n := s.Posted(id); n != 0 {
		t.Errorf("the interrupted call was answered %d times", n)
	}
}

// The sandbox has the agent's skills and memories, and changed memories are uploaded.
func TestAgentsSkillsAndMemories(t *testing.T) {
	t.Parallel()
	w := newAgentsWorld(t, 10*time.Second)
	notes := w.queue.MemoryStore("/mnt/memory/notes", "read_write", map[string]string{"/a ü.md": "one", "/deep/b.md": "two", "/gone.md": "three", "/both.md": "four"})
	rules := w.queue.MemoryStore("/mnt/memory/rules", "read_only", map[string]string{"/r.md": "rule"})
	s := w.queue.Session([]string{w.queue.Skill("pdf", skillArchive(t, map[string]string{
		"pdf/SKILL.md": "# pdf", "pdf/scripts/ü b.sh": "echo skill",
	})), w.queue.Skill("../hostile", skillArchive(t, map[string]string{"../../../escape": "no"}))}, notes, rules)
	w.want(s.Call("bash", in{"command": "cat skills/pdf/SKILL.md; sh 'skills/pdf/scripts/ü b.sh'; find skills/hostile -type f; ls /workspace skills"}),
		"# pdfskill\nskills/hostile/escape\n/workspace:\nskills\n\nskills:\nhostile\npdf\n", false)
	w.want(s.Call("bash", in{"command": "cd /mnt/memory/notes && cat 'a ü.md' deep/b.md ../rules/r.md"}), "onetworule", false)
	w.want(s.Call("read", in{"file_path": "/mnt/memory/notes/a ü.md"}), "one", false)
	w.wantPart(s.Call("write", in{"file_path": "/mnt/memory/rules/r.md", "content": "mine"}), "read-only directory", true)
	w.wantPart(s.Call("bash", in{"command": "echo mine > /mnt/memory/rules/r.md"}), "ermission denied", true)
	w.want(s.Call("bash", in{"command": "printf new > new.md; printf ONE > 'a ü.md'; rm gone.md; printf FOUR > both.md"}), "(no output)", false)
	notes.Put("/deep/b.md", "TWO")
	notes.Put("/both.md", "4")
	s.Idle()
	w.queue.AwaitRest(s.ID)
	wantFiles := func(want map[string]string) {
		t.Helper()
		if got := notes.Files(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the memories are %q, want %q", got, want)
		}
	}
	wantFiles(map[string]string{"/a ü.md": "ONE", "/deep/b.md": "TWO", "/new.md": "new", "/both.md": "4"})
	w.want(s.Call("bash", in{"command": "pwd; cat 'a ü.md' deep/b.md both.md; ls"}), "/mnt/memory/notes\nONETWO4a ü.md\nboth.md\ndeep\nnew.md\n", false)

	// A change made in the sandbox survives the server, and does not overwrite changes made elsewhere.
	w.want(s.Call("bash", in{"command": "printf kept > new.md"}), "(no output)", false)
	w.must(w.Kill())
	notes.Put("/deep/b.md", "again")
	w.must(w.Start())
	w.want(s.Call("bash", in{"command": "cat deep/b.md new.md"}), "againkept", false)
	s.Idle()
	w.queue.AwaitRest(s.ID)
	wantFiles(map[string]string{"/a ü.md": "ONE", "/deep/b.md": "again", "/new.md": "kept", "/both.md": "4"})
	if got := rules.Files()["/r.md"]; got != "rule" {
		t.Errorf("the read-only memory is %q", got)
	}
}

func skillArchive(t *testing.T, files map[string]string) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, content := range files {
		f, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Attachments through the command line and the REST API.
func TestAgentsCommandLine(t *testing.T) {
	t.Parallel()
	w := newAgentsWorld(t, 10*time.Second)
	program, err := testserver.Program()
	w.must(err)
	run := func(stdin, key string, args ...string) (string, error) {
		cmd := exec.Command(program, append([]string{"agents"}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "BOTHY_URL="+w.URL(), "BOTHY_API_KEY="+w.Key, "ANTHROPIC_ENVIRONMENT_KEY="+key)
		cmd.Stdin = strings.NewReader(stdin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("", "", "detach", w.id); err != nil {
		t.Fatal(out, err)
	}
	attach := []string{"attach", "--environment", agentsEnvironment, "--url", w.queue.URL, "-t", templateName, "--memory", "256", "--budget", "3", "--max-sessions", "2"}
	for _, c := range []struct{ args, want []string }{
		{attach, []string{"there is no environment key", "--key-file"}},
		{append(attach, "--key-file", "-", "--tool", "x"), []string{"has no command"}},
		{[]string{"attach"}, []string{"environment"}},
		{[]string{"detach", "agt_none"}, []string{"no environment is attached", "bothy agents ls"}},
	} {
		out, err := run(agentsKey, "", c.args...)
		for _, part := range c.want {
			if err == nil || !strings.Contains(out, part) {
				t.Errorf("%q: %v, %s", c.args, err, out)
			}
		}
	}
	out, err := run(agentsKey+"\n", "", append(attach, "--key-file", "-", "--tool", "shout=tr a-z A-Z")...)
	if err != nil || !strings.HasPrefix(out, "agt_") {
		t.Fatal(out, err)
	}
	id := strings.TrimSpace(out)
	s := w.queue.Session(nil)
	w.want(s.Wait(s.StartCustom("shout", in{"a": "b"})), `{"A":"B"}`, false)
	for _, args := range [][]string{{"ls"}, {"get", id}, {"get", agentsEnvironment}, {"ls", "--json"}} {
		out, err := run("", "", args...)
		if err != nil || !strings.Contains(out, id) || !strings.Contains(out, agentsEnvironment) || !strings.Contains(out, "working") || strings.Contains(out, agentsKey) {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
	out, err = run("", "", "get", id)
	if err != nil || !strings.Contains(out, s.ID) {
		t.Errorf("%v\n%s", err, out)
	}
	a, err := w.Agents.AgentAttachment(t.Context(), id)
	w.must(err)
	box, err := w.Sandboxes.Get(t.Context(), a.Sessions[0].SandboxID)
	w.must(err)
	if box.MemoryMB != 256 || box.Budget != 3 || box.Network.Mode != bothy.NetworkOff || box.OnTimeout != bothy.TimeoutPause || !box.AutoResume || a.MaxSessions != 2 {
		t.Errorf("%+v, %+v", box, a)
	}
	if out, err := run("", agentsKey, attach...); err != nil || strings.TrimSpace(out) != id {
		t.Errorf("attached again: %v, %s", err, out)
	}
	if out, err := run("", "", "detach", agentsEnvironment); err != nil {
		t.Error(out, err)
	}
	w.queue.AwaitRest(s.ID)
	w.awaitState(box.ID, bothy.StatePaused)
	w.must(w.Sandboxes.Terminate(t.Context(), box.ID))
}
