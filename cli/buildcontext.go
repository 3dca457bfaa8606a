package cli

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"

	"github.com/bothy-dev/bothy"
)

func itoa(n int) string { return strconv.Itoa(n) }

// uploadContext sends a folder to the server, without what .dockerignore names.
func (a *app) uploadContext(ctx context.Context, s *session, folder, dockerfile string) (*bothy.BuildContext, error) {
	info, err := os.Stat(folder)
	if err == nil && !info.IsDir() {
		err = errors.New("it is not a folder")
	}
	if err != nil {
		return nil, usagef("Give the folder that COPY takes files from.", "%s cannot be the context: %v", folder, err)
	}
	ignored, err := readIgnore(folder, dockerfile)
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	defer r.Close()
	go func() { w.CloseWithError(packContext(w, folder, ignored)) }()
	return s.builder.UploadContext(ctx, r)
}

// readIgnore reads the Dockerfile's own .dockerignore, or that of the folder.
func readIgnore(folder, dockerfile string) (*patternmatcher.PatternMatcher, error) {
	for _, name := range []string{dockerfile + ".dockerignore", ".dockerignore"} {
		f, err := os.Open(filepath.Join(folder, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		patterns, err := ignorefile.ReadAll(f)
		f.Close()
		if err != nil {
			return nil, usagef("Check its lines.", "%s cannot be read: %v", name, err)
		}
		m, err := patternmatcher.New(patterns)
		if err != nil {
			return nil, usagef("Check its patterns.", "%s cannot be read: %v", name, err)
		}
		return m, nil
	}
	return patternmatcher.New(nil)
}

// packContext writes a folder as a tar. The server would ignore the same files anyway; omitting
// them makes the upload smaller.
func packContext(w io.Writer, folder string, ignored *patternmatcher.PatternMatcher) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	t := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		out, err := ignored.MatchesOrParentMatches(filepath.FromSlash(name))
		if err != nil {
			return err
		}
		switch {
		case out && d.IsDir() && !ignored.Exclusions():
			return fs.SkipDir
		case out && !keepsNames(name), d.Type()&fs.ModeSocket != 0:
			return nil
		}
		return packContextEntry(t, root, name, d)
	})
	return errors.Join(err, t.Close())
}

// keepsNames makes sure that ignore files are sent: the server reads them.
func keepsNames(name string) bool { return strings.HasSuffix(name, ".dockerignore") }

func packContextEntry(t *tar.Writer, root *os.Root, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	link := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if link, err = root.Readlink(name); err != nil {
			return err
		}
	case !info.IsDir() && !info.Mode().IsRegular():
		return usagef("Name it in .dockerignore.", "%s is neither a file, a folder nor a symbolic link", name)
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name, h.Uid, h.Gid, h.Uname, h.Gname, h.Format = name, 0, 0, "", "", tar.FormatPAX
	if info.IsDir() {
		h.Name += "/"
	}
	if err := t.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(t, f, h.Size)
	return err
}
