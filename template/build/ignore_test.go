package build

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/template/tree"
	"golang.org/x/sys/unix"
)

// ignored is a tree of files with a .dockerignore.
func ignored(t *testing.T, files int, text string) *tree.Tree {
	t.Helper()
	tr := tree.New(epoch)
	put := func(name, text string) {
		if err := tr.Put(name, &tree.Node{Mode: unix.S_IFREG | 0o644, Time: epoch, Data: tree.Text(text)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range files {
		put(fmt.Sprintf("d%d/f%d", i/1000, i), "")
	}
	put(".dockerignore", text)
	return tr
}

// Many patterns are not compared with many files, and a comparison ends with its build.
func TestIgnoringIsLimited(t *testing.T) {
	began := time.Now()
	for what, c := range map[string]struct {
		files int
		text  string
		want  string
	}{
		"a large file":                {1, strings.Repeat("a\n", maxIgnore), "131072 bytes"},
		"many patterns of many files": {3000, strings.Repeat("**/a*b\n", 5000), "5000 patterns"},
		"what is usual":               {2000, "d0\n!d0/f7\n*.log\n", ""},
	} {
		tr := ignored(t, c.files, c.text)
		err := ignore(t.Context(), tr, "Dockerfile")
		if c.want == "" && err != nil || c.want != "" && (bothy.ErrorCode(err) != bothy.CodeInvalid || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", what, err)
		}
		_, kept := tr.Get("d0/f7")
		_, gone := tr.Get("d0/f8")
		if c.want == "" && (kept != nil || gone == nil) {
			t.Errorf("%s: %v, and what is ignored: %v", what, kept, gone)
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// What goes over all files of a context ends with the build.
func TestReadingAContextEndsWithItsBuild(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errCancelled)
	tr := ignored(t, 10, "a")
	var sums treeHasher
	_, summed := sums.sum(ctx, tr.Root())
	_, found := (&Files{Sources: []string{"d*/*"}}).from(ctx, tr)
	for what, err := range map[string]error{
		"to ignore": ignore(ctx, tr, "Dockerfile"), "a checksum": summed, "wildcards": found,
		"to copy": (&copying{ctx: ctx, from: tr, to: tree.New(epoch), files: Files{Sources: []string{"d0"}, Dest: "/"}}).run(),
	} {
		if !errors.Is(err, errCancelled) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
