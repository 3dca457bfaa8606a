package build

import (
	"context"
	"os"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/confined"
	"github.com/bothy-dev/bothy/template/apart"
)

// All tests parse in processes of their own, where the host allows it. With the race detector those take
// seconds to start, and share no memory with this one: scripts/suite runs some tests without it.
func TestMain(m *testing.M) {
	if run := confined.Serve(apart.Tasks()...); run != nil {
		os.Exit(run())
	}
	if !confined.Raced {
		_ = confined.Try(context.Background())
	}
	os.Exit(m.Run())
}

// The entries of a context are listed when it is uploaded, and not again.
func TestContextsAreListedOnce(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	w := newWorld(t)
	id := w.upload("f", "x", "d/g", "y")
	index := w.contextPath(bothy.DefaultProject, id) + indexSuffix
	before, err := os.Stat(index)
	if err != nil {
		t.Fatal(err)
	}
	req := bothy.BuildRequest{Dockerfile: "FROM base\nCOPY d/g /g", ContextID: w.upload("f", "x", "d/g", "y")}
	w.build(req)
	if after, err := os.Stat(index); err != nil || !os.SameFile(before, after) {
		t.Errorf("another upload of the same is listed again: %v", err)
	}
	// Such as after a power cut.
	if err := os.Truncate(index, before.Size()-1); err != nil {
		t.Fatal(err)
	}
	files, err := w.readContext(t.Context(), w.contextPath(bothy.DefaultProject, id))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := files.Get("d/g"); err != nil || n.Data.Size != 1 {
		t.Errorf("%+v %v", n, err)
	}
	if _, err := os.Stat(index); err == nil {
		t.Error("a damaged list is kept")
	}
}
