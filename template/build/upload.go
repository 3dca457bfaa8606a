package build

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/template/tree"
)

const contextPrefix = "ctx_"

var validContext = regexp.MustCompile(`^ctx_[0-9a-f]{64}$`)

// contextPath is the file of a project's context.
func (b *Builder) contextPath(project, id string) string {
	if !validContext.MatchString(id) {
		return filepath.Join(b.contexts(), "none")
	}
	return filepath.Join(b.contexts(), keyOf(project)[:16]+"-"+strings.TrimPrefix(id, contextPrefix)+".tar")
}

// UploadContext implements bothy.TemplateBuilder.
func (b *Builder) UploadContext(ctx context.Context, r io.Reader) (*bothy.BuildContext, error) {
	caller, err := bothy.Require(ctx, bothy.ScopeTemplatesWrite)
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(b.contexts(), ".new-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(f.Name())
	sum, err := b.spool(ctx, f, r)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, diskFull(err)
	}
	t, err := b.readContext(ctx, f.Name())
	if err != nil {
		return nil, err
	}
	c := &bothy.BuildContext{ID: contextPrefix + sum}
	_ = tree.Walk(t.Root(), func(name string, n *tree.Node) error {
		if n.IsFile() {
			c.Files, c.SizeBytes = c.Files+1, c.SizeBytes+n.Data.Size
		}
		return nil
	})
	if err := os.Rename(f.Name(), b.contextPath(caller.ProjectID, c.ID)); err != nil {
		return nil, err
	}
	return c, b.dropContexts()
}

// spool writes a tar, uncompressed, to a file, and returns its checksum.
func (b *Builder) spool(ctx context.Context, f *os.File, r io.Reader) (string, error) {
	in := bufio.NewReaderSize(&whileAlive{ctx, r}, 64<<10)
	plain := io.Reader(in)
	if head, _ := in.Peek(2); len(head) == 2 && head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return "", badContext(err)
		}
		plain = z
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(b.guard(b.contexts()), f, sum), io.LimitReader(plain, maxContextBytes+1))
	if err != nil {
		return "", badContext(err)
	}
	if n > maxContextBytes {
		return "", bothy.Errorf(bothy.CodeTooLarge, "the context has more than %d GB", int64(maxContextBytes)>>30).
			WithHint("Exclude what the build does not need with .dockerignore.")
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func badContext(err error) error {
	var e *bothy.Error
	if errors.As(err, &e) || errors.Is(err, context.Canceled) {
		return err
	}
	return bothy.Errorf(bothy.CodeInvalid, "the context is incomplete: %v", err).WithHint("Send a tar, optionally compressed with gzip.").Because(err)
}

// dropContexts deletes expired contexts.
func (b *Builder) dropContexts() error {
	entries, err := os.ReadDir(b.contexts())
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && time.Since(info.ModTime()) > contextLife && !b.uses(e.Name()) {
			err = os.Remove(filepath.Join(b.contexts(), e.Name()))
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("delete a context: %w", err))
		}
	}
	return errors.Join(errs...)
}

// contextsOf are the ids of all contexts of a request.
func contextsOf(req *bothy.BuildRequest) []string {
	ids := slices.Collect(maps.Values(req.Contexts))
	if req.ContextID != "" {
		ids = append(ids, req.ContextID)
	}
	return ids
}

// uses reports whether a running build needs a context.
func (b *Builder) uses(file string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.builds {
		for _, id := range r.contexts() {
			if filepath.Base(b.contextPath(r.build.ProjectID, id)) == file {
				return true
			}
		}
	}
	return false
}
