package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// built builds a template that is removed when the test ends.
func (s *server) built(t *testing.T, req bothy.BuildRequest) (*bothy.Build, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	b, err := s.Builder.StartBuild(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Templates.RemoveTemplate(context.Background(), req.Name); err != nil && bothy.ErrorCode(err) != bothy.CodeTemplateNotFound {
			t.Error(err)
		}
	})
	var log strings.Builder
	err = s.Builder.BuildLog(ctx, b.ID, 0, func(_ int64, e bothy.BuildEvent) error {
		fmt.Fprintln(&log, e.Step, e.Message, e.Error)
		return nil
	})
	if err == nil {
		b, err = s.Builder.Build(ctx, b.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b, log.String()
}

func TestProgramsAreAlreadyRunning(t *testing.T) {
	t.Parallel()
	name := fmt.Sprintf("started-%d", os.Getpid())
	req := bothy.BuildRequest{
		Name: name, Dockerfile: "FROM " + templateName + "\nWORKDIR /srv\nRUN echo hello >page",
		Start: &bothy.TemplateStart{Command: "exec python3 -m http.server 8000", Ready: &bothy.TemplateReady{URL: "http://localhost:8000/page"}, MemoryMB: 256},
	}
	if b, log := shared.built(t, req); b.State != bothy.BuildSucceeded {
		t.Fatalf("%+v\n%s", b, log)
	}
	const fetch = `python3 -c 'from urllib.request import urlopen; print(urlopen("http://localhost:8000/page").read().decode())'; pgrep -f http.server`
	var said []string
	for range 2 {
		sb, err := shared.create(t.Context(), bothy.SandboxCreate{Template: name, MemoryMB: 256, DiskMB: bothy.DefaultDiskMB})
		if err != nil {
			t.Fatal(err)
		}
		b := &box{t, shared, t.Context(), sb.ID}
		said = append(said, b.sh("", fetch))
		if err := shared.Sandboxes.Terminate(t.Context(), sb.ID); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.HasPrefix(said[0], "hello\n") || said[1] != said[0] {
		t.Errorf("two sandboxes print %q", said)
	}
	// A failed build keeps the old template.
	req.Start = &bothy.TemplateStart{Command: "echo cannot; exit 9", Ready: &bothy.TemplateReady{Port: 8000}}
	b, log := shared.built(t, req)
	if b.State != bothy.BuildFailed || !strings.Contains(b.Error, "exit code 9") || !strings.Contains(log, "cannot") {
		t.Errorf("%+v\n%s", b, log)
	}
	list, err := shared.Templates.Templates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range list {
		if one.Name == name && (one.Tag != "" || one.Memory == nil || one.Start == nil) {
			t.Errorf("the template is %+v", one)
		}
	}
	if err := shared.Templates.RemoveTemplate(t.Context(), name); err != nil {
		t.Error("the template cannot be removed:", err)
	}
}

func TestAFailedBuildLeavesASandbox(t *testing.T) {
	t.Parallel()
	req := bothy.BuildRequest{
		Name: fmt.Sprintf("failed-%d", os.Getpid()), ShellOnFailure: true, MemoryMB: 256,
		Dockerfile: "FROM python-3.12-bare\nENV COLOR=blue\nWORKDIR /srv\nRUN echo one >before && chown user .\nUSER user\nRUN echo two >after && false",
	}
	built, log := shared.built(t, req)
	if built.State != bothy.BuildFailed || built.SandboxID == "" || !strings.Contains(built.Hint, built.SandboxID) {
		t.Fatalf("%+v\n%s", built, log)
	}
	t.Cleanup(func() {
		if err := shared.Sandboxes.Terminate(context.Background(), built.SandboxID); err != nil {
			t.Error(err)
		}
	})
	b := &box{t, shared, t.Context(), built.SandboxID}
	const want = "/srv user blue before one"
	const look = "echo $(pwd; whoami; echo $COLOR; ls; cat before)"
	if got := b.sh("", look); got != want {
		t.Errorf("it has %q", got)
	}
	// It is a normal sandbox, although its template no longer has a name.
	for _, filesOnly := range []bool{false, true} {
		if _, err := b.s.Snapshots.Pause(b.ctx, b.id, bothy.PauseOptions{FilesOnly: filesOnly}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.s.Snapshots.Resume(b.ctx, b.id, bothy.ResumeOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := b.sh("", look); got != want {
			t.Errorf("after a pause it has %q", got)
		}
	}
}

// A build command that never ends is stopped after its time-out and leaves nothing behind.
func TestCommandsOfBuildsThatNeverEnd(t *testing.T) {
	t.Parallel()
	name := fmt.Sprintf("endless-%d", os.Getpid())
	b, log := shared.built(t, bothy.BuildRequest{Name: name, Dockerfile: "FROM " + templateName + "\nRUN echo begun && sleep 54322", TimeoutSeconds: 2})
	if b.State != bothy.BuildFailed || !strings.Contains(b.Error, "line 2: the command did not end within 2 seconds") || !strings.Contains(log, "begun") {
		t.Errorf("%+v\n%s", b, log)
	}
	list, err := shared.Sandboxes.List(t.Context(), bothy.SandboxFilter{Metadata: map[string]string{"bothy.build": b.ID}})
	if err != nil || len(list.Items) != 1 || list.Items[0].State != bothy.StateStopped {
		t.Errorf("its sandboxes: %+v, %v", list.Items, err)
	}
}

// What an image has in /run is there for its build's next command and in its sandboxes, and a secret is
// the user's that its mount names.
func TestRunIsFilledFromTheTemplate(t *testing.T) {
	t.Parallel()
	req := bothy.BuildRequest{
		Name: fmt.Sprintf("run-%d", os.Getpid()), MemoryMB: 256, Network: &bothy.Network{Mode: bothy.NetworkOff},
		Secrets: []bothy.BuildSecret{{ID: "key", Value: "hidden word"}},
		Dockerfile: "FROM " + templateName + "\nRUN mkdir -p /run/db/x && chown 104:105 /run/db && chmod 2770 /run/db && echo 1 >/run/db/x/pid && ln -s db /run/link\n" +
			"USER 1234\nRUN --mount=type=secret,id=key,uid=1234,mode=0400 wc -w /run/secrets/key\nUSER root\n" +
			"RUN cat /run/link/x/pid && rm /run/link && touch -d 2001-02-03T04:05:06Z /run/late",
	}
	b, log := shared.built(t, req)
	if b.State != bothy.BuildSucceeded || !strings.Contains(log, " 2 /run/secrets/key") {
		t.Fatalf("%+v\n%s", b, log)
	}
	sb, err := shared.create(t.Context(), bothy.SandboxCreate{Template: req.Name})
	if err != nil {
		t.Fatal(err)
	}
	box := &box{t, shared, t.Context(), sb.ID}
	got := box.sh("", "cd /run; sudo stat -c '%n %u:%g %a' db db/x db/x/pid; stat -c %Y late; sudo cat db/x/pid; ls -A | grep -v bothy | tr '\\n' ' '; grep -c ' /run' /proc/mounts")
	if want := "db 104:105 2770\ndb/x 0:0 755\ndb/x/pid 0:0 644\n981173106\n1\ndb late lock 1"; got != want {
		t.Errorf("it has %q", got)
	}
	if err := shared.Sandboxes.Terminate(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
}
