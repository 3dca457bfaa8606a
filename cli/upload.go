package cli

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bothy-dev/bothy"
)

// uploader copies files of this host into a sandbox.
type uploader struct {
	app     *app
	session *session
	id      string
	user    string
}

// put copies sources to a path in the sandbox.
func (u *uploader) put(ctx context.Context, sources []string, to string) error {
	exists, isDir, err := u.look(ctx, to)
	if err != nil {
		return err
	}
	into := isDir || strings.HasSuffix(to, "/")
	if len(sources) > 1 && !into {
		return usagef("End the destination in a slash to make it a folder.", "several sources need a folder to go to, and %s is none", to)
	}
	for _, source := range sources {
		if err := u.putOne(ctx, source, to, into, exists); err != nil {
			return err
		}
	}
	return nil
}

// look describes what is at a path in the sandbox.
func (u *uploader) look(ctx context.Context, path string) (exists, isDir bool, err error) {
	info, err := u.session.files.Stat(ctx, u.id, path, u.user)
	if bothy.ErrorCode(err) == bothy.CodeFileNotFound {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	return true, info.Type == bothy.FileDirectory, nil
}

func (u *uploader) putOne(ctx context.Context, source, to string, into, exists bool) error {
	if source == "-" {
		_, err := u.session.files.Write(ctx, u.id, to, u.app.stdin, bothy.WriteOptions{User: u.user})
		return err
	}
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("cannot copy %s: %w", source, reason(err))
	}
	name := baseName(source)
	if into && name != "" {
		to, exists = path.Join(to, name), false
	}
	switch {
	case info.IsDir():
		return u.putFolder(ctx, source, to, exists)
	case info.Mode().IsRegular() || info.Mode()&fs.ModeNamedPipe != 0:
		return u.putFile(ctx, source, to, info)
	}
	return fmt.Errorf("cannot copy %s: it is neither a file nor a folder", source)
}

// baseName is the name that a copy gets inside a folder; "" if the source means the folder's
// content.
func baseName(source string) string {
	if source == "." || strings.HasSuffix(source, "/.") {
		return ""
	}
	if name := filepath.Base(source); name != ".." && name != "/" {
		return name
	}
	return ""
}

func (u *uploader) putFile(ctx context.Context, source, to string, info fs.FileInfo) error {
	f, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("cannot copy %s: %w", source, reason(err))
	}
	defer f.Close()
	bar := newProgress(u.app.stderr)
	defer bar.done()
	options := bothy.WriteOptions{Mode: uint32(info.Mode().Perm()), User: u.user, ModifiedAt: info.ModTime(), Size: info.Size()}
	_, err = u.session.files.Write(ctx, u.id, to, meter(f, bar, source, info.Size()), options)
	return err
}

// putFolder sends a folder as a tar, which is made while it is sent.
func (u *uploader) putFolder(ctx context.Context, source, to string, exists bool) error {
	if !exists {
		if err := u.mkdir(ctx, to); err != nil {
			return err
		}
	}
	bar := newProgress(u.app.stderr)
	defer bar.done()
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := packFolder(ctx, w, source, u.app.warn)
		w.CloseWithError(err)
		packed <- err
	}()
	err := u.session.files.WriteArchive(ctx, u.id, to, u.user, meter(r, bar, source, 0))
	r.CloseWithError(io.ErrClosedPipe)
	if packErr := <-packed; packErr != nil && packErr != io.ErrClosedPipe {
		return packErr
	}
	return err
}

func (u *uploader) mkdir(ctx context.Context, to string) error {
	_, isDir, err := u.look(ctx, to)
	if err != nil || isDir {
		return err
	}
	_, err = u.session.files.Mkdir(ctx, u.id, to, u.user)
	return err
}

// packFolder writes everything below folder as a tar, with names relative to it.
func packFolder(ctx context.Context, w io.Writer, folder string, warn func(string, ...any)) error {
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(folder, name)
		if err != nil {
			return err
		}
		return packEntry(tw, name, filepath.ToSlash(rel), entry, warn)
	})
	if err != nil {
		return err
	}
	return tw.Close()
}

func packEntry(tw *tar.Writer, name, rel string, entry fs.DirEntry, warn func(string, ...any)) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	if info.Mode().Type()&^(fs.ModeDir|fs.ModeSymlink) != 0 {
		warn("left out %s: it is neither a file, a folder nor a link", name)
		return nil
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(name); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	header.Name, header.Format = rel, tar.FormatPAX
	header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
	if info.IsDir() {
		header.Name += "/"
	}
	if err := tw.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	return packContent(tw, name, info.Size())
}

// packContent copies as much as the header promised.
func packContent(tw *tar.Writer, name string, size int64) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("cannot copy %s: %w", name, reason(err))
	}
	defer f.Close()
	if n, err := io.CopyN(tw, f, size); err == io.EOF {
		return fmt.Errorf("cannot copy %s: it shrank from %d to %d bytes meanwhile", name, size, n)
	} else if err != nil {
		return err
	}
	return nil
}
