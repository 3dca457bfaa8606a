package template_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/template"
)

func TestVerifyDetectsAChangedByte(t *testing.T) {
	image := filepath.Join(t.TempDir(), "rootfs.erofs")
	if err := os.WriteFile(image, []byte("image"), 0o600); err != nil {
		t.Fatal(err)
	}
	// The SHA-256 of "image".
	tm := &store.Template{Template: bothy.Template{Name: "x", Digest: "sha256:6105d6cc76af400325e94d588ce511be5bfdbb73b437dc51eca43917d7a43e3d"}, RootFS: image}
	if err := template.Verify(t.Context(), tm); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := template.Verify(ctx, tm); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled check: %v", err)
	}
	if err := os.WriteFile(image, []byte("imagf"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := template.Verify(t.Context(), tm); bothy.ErrorCode(err) != bothy.CodeTemplateInvalid || bothy.AsError(err).Hint == "" {
		t.Errorf("with a byte changed: %v", err)
	}
}
