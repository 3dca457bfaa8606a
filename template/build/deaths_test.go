package build

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// die opens the builder on what its folder has now, as after a crash of the server.
func (w *world) die() {
	w.Helper()
	crashed := filepath.Join(w.T.TempDir(), "builds")
	if err := os.CopyFS(crashed, os.DirFS(w.o.Dir)); err != nil {
		w.Fatal(err)
	}
	w.Builder.Close()
	w.o.Dir = crashed
	w.open()
}

func TestABuildThatTheServerDiesOfIsGivenUp(t *testing.T) {
	w := newWorld(t)
	b, err := w.StartBuild(w.me(), bothy.BuildRequest{Name: "made", Dockerfile: "FROM base\nRUN wait"})
	if err != nil {
		t.Fatal(err)
	}
	for range maxDeaths + 2 { // stopped in order
		<-w.entered
		w.Builder.Close()
		w.open()
	}
	for range maxDeaths {
		<-w.entered
		w.die()
	}
	r := w.wait(w.me(), b.ID)
	if r.State != bothy.BuildFailed || r.Code != bothy.CodeTemplateInvalid || !strings.Contains(r.Error, "the server died 2 times") || r.Hint == "" {
		t.Errorf("%+v", r.Build)
	}
	if w.left() != 0 {
		t.Errorf("%d sandboxes are left", w.left())
	}
}

// A server that may die of a build answers requests first.
func TestBuildsResumeWhenTheServerIsReady(t *testing.T) {
	w := newWorld(t)
	b, err := w.StartBuild(w.me(), bothy.BuildRequest{Name: "made", Dockerfile: "FROM base\nRUN wait"})
	if err != nil {
		t.Fatal(err)
	}
	<-w.entered
	w.Builder.Close()
	w.commands()
	next, err := New(w.o)
	if err == nil {
		err = next.Recover(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Builder = next
	if got, err := next.Build(w.me(), b.ID); err != nil || got.State != bothy.BuildQueued || got.StartedAt != nil {
		t.Errorf("before: %+v %v", got, err)
	}
	if ran := w.commands(); len(ran) != 0 {
		t.Errorf("before, ran %q", ran)
	}
	next.Resume()
	<-w.entered
	if got, err := next.CancelBuild(w.me(), b.ID); err != nil || got.State != bothy.BuildCancelled {
		t.Errorf("after: %+v %v", got, err)
	}
}

func TestABuildCanBeCancelledBeforeItResumes(t *testing.T) {
	w := newWorld(t)
	b, err := w.StartBuild(w.me(), bothy.BuildRequest{Name: "made", Dockerfile: "FROM base\nRUN wait"})
	if err != nil {
		t.Fatal(err)
	}
	<-w.entered
	w.Builder.Close()
	if w.Builder, err = New(w.o); err == nil {
		err = w.Builder.Recover(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := w.CancelBuild(w.me(), b.ID); err != nil || got.State != bothy.BuildCancelled {
		t.Errorf("%+v %v", got, err)
	}
}

// What cannot be recorded as running does not run: no later server would know what killed this one.
func TestABuildThatCannotBeRecordedDoesNotRun(t *testing.T) {
	w := newWorld(t)
	w.Builder.Close()
	next, err := New(w.o)
	if err != nil {
		t.Fatal(err)
	}
	w.Builder = next
	b, err := w.StartBuild(w.me(), bothy.BuildRequest{Name: "made", Dockerfile: "FROM base\nRUN print x"})
	if err != nil {
		t.Fatal(err)
	}
	// A folder is where the record is written.
	if err := os.Mkdir(filepath.Join(next.records(), b.ID, ".build.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	next.Resume()
	r := w.wait(w.me(), b.ID)
	if r.State != bothy.BuildFailed || len(w.commands()) != 0 {
		t.Errorf("%+v", r.Build)
	}
}
