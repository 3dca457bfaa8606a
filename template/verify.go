package template

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"

	"github.com/bothy-dev/bothy/store"
)

// Verify reads a template's image and verifies its digest. That takes about a second per
// gigabyte, so it is not done at starts but only when an operator asks.
func Verify(ctx context.Context, t *store.Template) error {
	f, err := os.Open(t.RootFS)
	if err != nil {
		return damaged(t.Name, "its image cannot be read").Because(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, &untilDone{ctx, f}); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return damaged(t.Name, "its image cannot be read").Because(err)
	}
	if got := digestPrefix + hex.EncodeToString(h.Sum(nil)); got != t.Digest {
		return damaged(t.Name, "its image does not match its digest")
	}
	return nil
}

// untilDone is a reader that stops when its context ends.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u *untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
