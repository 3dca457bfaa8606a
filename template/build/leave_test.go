package build

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// A failed build leaves one sandbox with what there was before the command, if it was
// asked to, and no tag.
func TestAFailedBuildLeavesAShell(t *testing.T) {
	w := newWorld(t)
	r := w.build(bothy.BuildRequest{
		Name: "tools:v2", ShellOnFailure: true, Args: map[string]string{"V": "7"},
		Dockerfile: "FROM base AS other\nRUN write /other yes\nFROM base\nARG V\nENV COLOR=blue\nWORKDIR /srv\nUSER app\nRUN write /before yes\nRUN write /after yes && fail",
	})
	if r.State != bothy.BuildFailed || r.SandboxID == "" || !strings.Contains(r.Hint, "bothy sh "+r.SandboxID) || w.left() != 1 {
		t.Fatalf("%s, sandbox %q, hint %q, %d left", r.State, r.SandboxID, r.Hint, w.left())
	}
	left := w.boxes[r.SandboxID]
	if _, err := left.now.Get("before"); err != nil {
		t.Errorf("what there was before: %v", err)
	}
	if _, err := left.now.Get("after"); err == nil {
		t.Error("the sandbox has what the command has made")
	}
	made := left.template
	if made.Cwd != "/srv" || made.User != "app" || made.Env["COLOR"] != "blue" || made.Env["V"] != "7" {
		t.Errorf("commands in it run as %+v", made)
	}
	if all, err := w.library.Templates(w.me()); err != nil || len(all) != 1 {
		t.Errorf("the library has %d templates, %v", len(all), err)
	}
	again, err := w.Build(w.me(), r.ID)
	if err != nil || again.SandboxID != r.SandboxID {
		t.Errorf("the build is %+v, %v", again, err)
	}
}

func TestShellsThatNobodyAskedFor(t *testing.T) {
	w := newWorld(t)
	for name, req := range map[string]bothy.BuildRequest{
		"not asked for":         {Dockerfile: "FROM base\nRUN fail"},
		"no command has failed": {Dockerfile: "FROM base\nCOPY --from=base /missing /x", ShellOnFailure: true},
		"all is well":           {Dockerfile: "FROM base\nRUN write /a b", ShellOnFailure: true},
	} {
		if r := w.build(req); r.SandboxID != "" || w.left() != 0 {
			t.Errorf("%s: sandbox %q, %d are left", name, r.SandboxID, w.left())
		}
	}
	b, err := w.StartBuild(w.me(), bothy.BuildRequest{Name: "made", Dockerfile: "FROM base\nRUN wait", ShellOnFailure: true})
	if err != nil {
		t.Fatal(err)
	}
	<-w.entered
	if _, err := w.CancelBuild(w.me(), b.ID); err != nil || w.left() != 0 {
		t.Errorf("a build that was cancelled: %v, %d are left", err, w.left())
	}
}

// stuck is a library that takes no tag away.
type stuck struct{ Library }

func (stuck) Untag(context.Context, string, string) error { return errors.New("the tag is stuck") }

// A sandbox that runs is named, also where the tag of its image stays.
func TestAShellWhoseTagStays(t *testing.T) {
	w := newWorld(t)
	w.Builder.Close()
	w.o.Library = stuck{w.library}
	w.open()
	r := w.build(bothy.BuildRequest{Dockerfile: "FROM base\nRUN fail", ShellOnFailure: true})
	if r.SandboxID == "" || w.left() != 1 {
		t.Errorf("sandbox %q, %d are left: %s", r.SandboxID, w.left(), r.log)
	}
}

// Where the sandbox does not start, the build fails as it would have without.
func TestAShellThatDoesNotStart(t *testing.T) {
	w := newWorld(t)
	w.refuse = func(_ context.Context, t *store.Template) error {
		if strings.Contains(t.Ref(), leftTag) {
			return bothy.Errorf(bothy.CodeCapacity, "the host is full")
		}
		return nil
	}
	r := w.build(bothy.BuildRequest{Dockerfile: "FROM base\nRUN fail", ShellOnFailure: true})
	if r.SandboxID != "" || !strings.Contains(r.Error, "exit code 3") || !strings.Contains(r.log, "did not start: the host is full") {
		t.Errorf("sandbox %q, %s\n%s", r.SandboxID, r.Error, r.log)
	}
	if all, err := w.library.Templates(w.me()); err != nil || len(all) != 1 {
		t.Errorf("the library has %d templates, %v", len(all), err)
	}
}
