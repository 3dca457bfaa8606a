package build

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/bounded"
	"github.com/bothy-dev/bothy/template/apart"
	"github.com/bothy-dev/bothy/template/tree"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"golang.org/x/sys/unix"
)

// Limits of a context.
const (
	maxContextBytes = 16 << 30
	maxContextFiles = 1_000_000
	maxDockerfile   = 1 << 20
	// largeContext is the size of a tar from which it may have very many entries.
	largeContext = 64 << 20
	// indexSuffix is that of the list of a context's entries, which is made when it is uploaded, so
	// that builds need not parse the tar.
	indexSuffix = ".index"
)

// readContext reads an uploaded tar into a tree. All files belong to root, whoever they belonged
// to where they were packed. Devices and the like are an error with their name.
func (b *Builder) readContext(ctx context.Context, tarFile string) (*tree.Tree, error) {
	return b.readIndexed(ctx, tarFile, tarFile+indexSuffix)
}

// readIndexed is readContext with the index of a tar with the same content.
func (b *Builder) readIndexed(ctx context.Context, tarFile, index string) (*tree.Tree, error) {
	if info, err := os.Stat(tarFile); err == nil && info.Size() >= largeContext {
		select {
		case b.large <- struct{}{}:
			defer func() { <-b.large }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	t := tree.New(epoch)
	err := t.ApplyFrom(ctx, indexed(index), tarFile, tree.Plain, tree.BudgetOf(maxContextBytes, b.maxFiles))
	if errors.Is(err, tree.ErrEntries) { // such as after a power cut
		t, err = tree.New(epoch), os.Remove(index)
		if err == nil {
			err = t.ApplyFrom(ctx, apart.List, tarFile, tree.Plain, tree.BudgetOf(maxContextBytes, b.maxFiles))
		}
	}
	if err != nil {
		return nil, unreadable(err)
	}
	err = tree.Walk(t.Root(), func(name string, n *tree.Node) error {
		switch n.Mode & unix.S_IFMT {
		case unix.S_IFREG, unix.S_IFDIR, unix.S_IFLNK:
			n.UID, n.GID = 0, 0
			return nil
		}
		return bothy.Errorf(bothy.CodeInvalid, "the build context contains %s, which is not a file, folder or symbolic link", name).
			WithHint("Exclude it with .dockerignore.")
	})
	return t, err
}

func unreadable(err error) error {
	return bothy.Errorf(bothy.CodeInvalid, "cannot read the build context: %v", err).
		WithHint("Exclude what the build does not need with .dockerignore.").Because(err)
}

// indexed lists the entries of a context as its index has them, or else without it.
func indexed(index string) tree.Lister {
	return func(ctx context.Context, f *os.File, n int64, each func(*tar.Header, int64) error) error {
		r, err := os.Open(index)
		if errors.Is(err, fs.ErrNotExist) {
			return apart.List(ctx, f, n, each)
		}
		if err != nil {
			return err
		}
		defer r.Close()
		return apart.Read(ctx, f, r, n, each)
	}
}

// readContexts prepares the named contexts of a request, which are read when first used.
func (j *job) readContexts(ctx context.Context) {
	j.contexts = map[string]func() (*state, error){}
	for name, id := range j.req.Contexts {
		j.contexts[name] = sync.OnceValues(func() (*state, error) {
			t, err := j.b.readContext(ctx, j.b.contextPath(j.project, id))
			if err != nil {
				return nil, err
			}
			var sums treeHasher
			key, err := sums.sum(ctx, t.Root())
			return &state{key: "context " + key, files: t, uploaded: true}, err
		})
	}
}

// ignore removes from a context what its .dockerignore, or the Dockerfile's own one, names.
func ignore(ctx context.Context, t *tree.Tree, dockerfile string) error {
	var text []byte
	for _, name := range []string{dockerfile + ".dockerignore", ".dockerignore"} {
		n, err := t.Get(name)
		if err != nil || !n.IsFile() {
			continue
		}
		if n.Data.Size > maxIgnore {
			return badIgnore(fmt.Errorf("it has %d bytes, more than %d", n.Data.Size, maxIgnore))
		}
		if text, err = n.Data.Read(maxIgnore); err != nil {
			return err
		}
		break
	}
	patterns, err := ignorefile.ReadAll(strings.NewReader(string(text)))
	if err == nil {
		err = without(ctx, t, patterns, 1)
	}
	if err != nil && ctx.Err() == nil {
		return badIgnore(err)
	}
	return err
}

// without removes from a tree what patterns name, as a .dockerignore has them. It is one of so many
// trees for a step.
func without(ctx context.Context, t *tree.Tree, patterns []string, of int) error {
	if len(patterns) == 0 {
		return nil
	}
	m, err := patternmatcher.New(patterns)
	if err != nil {
		return err
	}
	files := 0
	_ = tree.Walk(t.Root(), func(string, *tree.Node) error { files++; return nil })
	if files > maxMatches/len(patterns)/of {
		return fmt.Errorf("it has %d patterns, too many for %d files", len(patterns), files)
	}
	in := &ignoring{ctx: ctx, t: t, m: m}
	_, err = in.folder(t.Root(), "", patternmatcher.MatchInfo{})
	return err
}

const (
	// maxIgnore limits the bytes of a .dockerignore, and maxMatches patterns times the files that they
	// are compared with.
	maxIgnore  = 64 << 10
	maxMatches = 10_000_000
)

func badIgnore(err error) error {
	return bothy.Errorf(bothy.CodeInvalid, ".dockerignore cannot be used: %v", err).
		WithHint("Use fewer patterns, such as folders in place of the files in them.")
}

// ignoring removes from a tree what patterns name.
type ignoring struct {
	ctx context.Context
	t   *tree.Tree
	m   *patternmatcher.PatternMatcher
}

func (in *ignoring) match(name string, above patternmatcher.MatchInfo) (bool, patternmatcher.MatchInfo, error) {
	if in.ctx.Err() != nil {
		return false, above, context.Cause(in.ctx)
	}
	return in.m.MatchesUsingParentResults(name, above)
}

// folder reports whether anything in a folder is left.
func (in *ignoring) folder(dir *tree.Node, prefix string, above patternmatcher.MatchInfo) (left bool, err error) {
	for _, name := range dir.Names() {
		p, n := path.Join(prefix, name), dir.Child(name)
		out, info, err := in.match(p, above)
		if err != nil {
			return false, err
		}
		some := false
		if n.IsDir() {
			if some, err = in.folder(n, p, info); err != nil {
				return false, err
			}
		}
		if out && !some {
			if err := in.t.Remove(p); err != nil {
				return false, err
			}
			continue
		}
		left = true
	}
	return left, nil
}

// A treeHasher computes checksums of trees, reading each file once.
type treeHasher struct{ known map[*tree.Node]string }

// sum covers everything of a node, and below it, that can reach an image, except times: a fresh
// clone of a repository has other times for the same files.
func (s *treeHasher) sum(ctx context.Context, n *tree.Node) (string, error) {
	h := sha256.New()
	err := s.add(ctx, h, "", n, map[*tree.Node]string{})
	return hex.EncodeToString(h.Sum(nil)), err
}

// add adds a node, and what is below it, to a checksum. linked has the first name of each file.
func (s *treeHasher) add(ctx context.Context, h io.Writer, at string, n *tree.Node, linked map[*tree.Node]string) error {
	return tree.Walk(n, func(name string, n *tree.Node) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		name = path.Join(at, name)
		fmt.Fprintf(h, "%q %o %d:%d %q %d:%d", name, n.Mode, n.UID, n.GID, n.Target, n.Major, n.Minor)
		for _, key := range slices.Sorted(maps.Keys(n.Xattrs)) {
			fmt.Fprintf(h, " %q=%q", key, n.Xattrs[key])
		}
		if first, ok := linked[n]; ok {
			fmt.Fprintf(h, " is %q\n", first)
			return nil
		}
		if !n.IsDir() {
			linked[n] = name
		}
		if !n.IsFile() {
			fmt.Fprintln(h)
			return nil
		}
		content, err := s.content(ctx, n)
		fmt.Fprintln(h, "", content)
		return err
	})
}

func (s *treeHasher) content(ctx context.Context, n *tree.Node) (string, error) {
	if sum, ok := s.known[n]; ok {
		return sum, nil
	}
	r, err := n.Data.Open()
	if err != nil {
		return "", err
	}
	defer r.Close()
	h := sha256.New()
	if _, err := io.Copy(h, bounded.Reader(ctx, r, maxContextBytes)); err != nil {
		return "", err
	}
	if s.known == nil {
		s.known = map[*tree.Node]string{}
	}
	s.known[n] = hex.EncodeToString(h.Sum(nil))
	return s.known[n], nil
}

// sources computes a checksum of what is copied.
func (s *treeHasher) sources(ctx context.Context, list []source) (string, error) {
	h, linked := sha256.New(), map[*tree.Node]string{}
	for _, one := range list {
		if err := s.add(ctx, h, one.name, one.node, linked); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
