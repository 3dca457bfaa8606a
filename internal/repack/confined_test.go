package repack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy/internal/confined"
)

func TestMain(m *testing.M) {
	if run := confined.Serve(Task); run != nil {
		os.Exit(run())
	}
	os.Exit(m.Run())
}

// Confined gives the same as Here, refuses the same, and ends with its context.
func TestConfinedRepacks(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	good := tarOf(t, tar.Header{Name: "pdf/a", Typeflag: tar.TypeReg, Uname: "one"}, tar.Header{Name: "pdf/b/c", Typeflag: tar.TypeReg, Uname: "two"})
	var here, there bytes.Buffer
	if err := errors.Join(Here(t.Context(), archiveOf(t, good), "skills/x", &here), Confined(t.Context(), archiveOf(t, good), "skills/x", &there)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(here.Bytes(), there.Bytes()) || here.Len() == 0 {
		t.Errorf("%d and %d bytes", here.Len(), there.Len())
	}
	err := Confined(t.Context(), archiveOf(t, bomb(t, 40<<20, 40<<20)), "skills/x", io.Discard)
	if err == nil || !strings.Contains(err.Error(), "the archive is refused") || !strings.Contains(err.Error(), "too large") {
		t.Errorf("a bomb: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Confined(ctx, archiveOf(t, good), "skills/x", io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}
