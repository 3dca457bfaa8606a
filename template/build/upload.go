package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/bounded"
	"github.com/bothy-dev/bothy/internal/confined"
	"github.com/bothy-dev/bothy/template/apart"
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
	sum, err := b.spool(ctx, caller.ProjectID, f, r)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, diskFull(err)
	}
	c := &bothy.BuildContext{ID: contextPrefix + sum}
	path := b.contextPath(caller.ProjectID, c.ID)
	index := path + indexSuffix // of an earlier upload of the same
	if _, err := os.Stat(index); err != nil {
		index = f.Name() + indexSuffix
		defer os.Remove(index)
		if err := b.index(ctx, f.Name(), index); err != nil {
			return nil, err
		}
	}
	t, err := b.readIndexed(ctx, f.Name(), index)
	if err != nil {
		return nil, err
	}
	_ = tree.Walk(t.Root(), func(name string, n *tree.Node) error {
		if n.IsFile() {
			c.Files, c.SizeBytes = c.Files+1, c.SizeBytes+n.Data.Size
		}
		return nil
	})
	if err := b.fit(caller.ProjectID, f.Name(), path); err != nil {
		return nil, err
	}
	for from, to := range map[string]string{index: path + indexSuffix, f.Name(): path} {
		if err := os.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return c, b.dropContexts()
}

// index writes the list of a context's entries, if a process of its own can make it.
func (b *Builder) index(ctx context.Context, tarFile, path string) error {
	if !confined.Possible() {
		return nil
	}
	in, err := os.Open(tarFile)
	if err != nil {
		return err
	}
	defer in.Close()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = apart.Index(ctx, in, b.maxFiles, io.MultiWriter(b.guard(b.contexts()), f))
	if err = errors.Join(err, f.Close()); err == nil || diskFull(err) != err {
		return diskFull(err)
	}
	return unreadable(err)
}

// spool writes a tar, uncompressed, to a file, and returns its checksum.
func (b *Builder) spool(ctx context.Context, project string, f *os.File, r io.Reader) (string, error) {
	plain, err := apart.Decompress(ctx, r, maxContextBytes)
	if err != nil {
		return "", badContext(err)
	}
	defer plain.Close()
	sum := sha256.New()
	share := &uploadShare{b: b, project: project}
	defer share.end()
	if _, err := io.Copy(io.MultiWriter(b.guard(b.contexts()), share, f, sum), plain); err != nil {
		return "", badContext(err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// maxContexts limits the contexts of a project, of all together as much as of one.
const maxContexts = 1000

// fit deletes a project's oldest contexts that no build needs, until another one fits.
func (b *Builder) fit(project, file, path string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	had, err := filepath.Glob(filepath.Join(b.contexts(), keyOf(project)[:16]+"-*.tar"))
	if err != nil {
		return err
	}
	type upload struct {
		path string
		fs.FileInfo
	}
	sum, list := info.Size(), []upload(nil)
	for _, name := range had {
		if info, err := os.Stat(name); err == nil && name != path {
			sum, list = sum+info.Size(), append(list, upload{name, info})
		}
	}
	slices.SortFunc(list, func(a, b upload) int { return a.ModTime().Compare(b.ModTime()) })
	left := len(list)
	for _, one := range list {
		if sum <= maxContextBytes && left < maxContexts {
			break
		}
		if b.uses(filepath.Base(one.path)) {
			continue
		}
		if err := os.Remove(one.path); err != nil {
			return err
		}
		_ = os.Remove(one.path + indexSuffix) // else it goes when it expires
		sum, left = sum-one.Size(), left-1
	}
	if sum > maxContextBytes || left >= maxContexts {
		return errContexts
	}
	return nil
}

var errContexts = bothy.Errorf(bothy.CodeQuota, "the project's builds and uploads need more than %d GB of contexts, or %d contexts, at once", int64(maxContextBytes)>>30, maxContexts).
	WithHint("Wait until some have ended, and exclude what a build does not need with .dockerignore.")

// counts has a number for each project.
type counts struct {
	mu sync.Mutex
	m  map[string]int64
}

// add adds to a project's number, and returns it.
func (c *counts) add(project string, n int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = map[string]int64{}
	}
	if c.m[project] += n; c.m[project] == 0 {
		delete(c.m, project)
		return 0
	}
	return c.m[project]
}

// uploadShare receives what is uploaded, and fails when all uploads of a project are too large.
type uploadShare struct {
	b       *Builder
	project string
	n       int64
}

func (u *uploadShare) Write(p []byte) (int, error) {
	u.n += int64(len(p))
	if u.b.uploading.add(u.project, int64(len(p))) > 2*maxContextBytes {
		return 0, errContexts
	}
	return len(p), nil
}

func (u *uploadShare) end() { u.b.uploading.add(u.project, -u.n) }

func badContext(err error) error {
	var e *bothy.Error
	if errors.As(err, &e) || errors.Is(err, context.Canceled) {
		return err
	}
	if limit, ok := errors.AsType[*bounded.Error](err); ok {
		return bothy.Errorf(bothy.CodeTooLarge, "the context has %v", limit).
			WithHint("Exclude what the build does not need with .dockerignore.").Because(err)
	}
	return bothy.Errorf(bothy.CodeInvalid, "the context is incomplete: %v", err).
		WithHint("Send a tar, plain or compressed with gzip, bzip2, xz or zstd.").Because(err)
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
		if err == nil && time.Since(info.ModTime()) > contextLife && !b.uses(strings.TrimSuffix(e.Name(), indexSuffix)) {
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
