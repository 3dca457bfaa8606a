package cli

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
)

// downloader copies files of a sandbox to this host.
type downloader struct {
	app     *app
	session *session
	id      string
	user    string
}

// get copies sources to a path of this host.
func (d *downloader) get(ctx context.Context, sources []string, to string) error {
	info, err := os.Stat(to)
	isDir := err == nil && info.IsDir()
	into := isDir || strings.HasSuffix(to, "/")
	if len(sources) > 1 && !into && to != "-" {
		return usagef("End the destination in a slash to make it a folder.", "several sources need a folder to go to, and %s is none", to)
	}
	for _, source := range sources {
		if err := d.getOne(ctx, source, to, into); err != nil {
			return err
		}
	}
	return nil
}

func (d *downloader) getOne(ctx context.Context, source, to string, into bool) error {
	if to == "-" {
		return d.print(ctx, source)
	}
	info, err := d.session.files.Stat(ctx, d.id, source, d.user)
	if err != nil {
		return err
	}
	if name := baseName(path.Clean(source) + dotSuffix(source)); into && name != "" {
		to = filepath.Join(to, name)
	}
	switch info.Type {
	case bothy.FileDirectory:
		return d.getFolder(ctx, source, to)
	case bothy.FileRegular, bothy.FileSymlink:
		return d.getFile(ctx, source, to)
	}
	return fmt.Errorf("cannot copy %s:%s: it is neither a file nor a folder", d.id, source)
}

// dotSuffix keeps the trailing /. that path.Clean drops.
func dotSuffix(source string) string {
	if strings.HasSuffix(source, "/.") {
		return "/."
	}
	return ""
}

func (d *downloader) print(ctx context.Context, source string) error {
	r, _, err := d.session.files.Read(ctx, d.id, source, d.user)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(d.app.stdout, r)
	return err
}

func (d *downloader) getFile(ctx context.Context, source, to string) error {
	r, info, err := d.session.files.Read(ctx, d.id, source, d.user)
	if err != nil {
		return err
	}
	defer r.Close()
	bar := newProgress(d.app.stderr)
	defer bar.done()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return writeAtomically(to, meter(r, bar, source, info.Size), info)
}

// writeAtomically writes a file next to its final place and renames it, so that it is never seen
// incomplete.
func writeAtomically(to string, r io.Reader, info *bothy.FileInfo) error {
	f, err := os.CreateTemp(filepath.Dir(to), ".bothy-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = io.Copy(f, r)
	if chmodErr := f.Chmod(filePerm(info)); err == nil {
		err = chmodErr
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	if info != nil && !info.ModifiedAt.IsZero() {
		if err := os.Chtimes(f.Name(), info.ModifiedAt, info.ModifiedAt); err != nil {
			return err
		}
	}
	return os.Rename(f.Name(), to)
}

// filePerm reads permission bits, as octal or as ls prints them.
func filePerm(info *bothy.FileInfo) fs.FileMode {
	if info == nil || info.Mode == "" {
		return 0o644
	}
	if n, err := strconv.ParseUint(info.Mode, 8, 32); err == nil {
		return fs.FileMode(n) & 0o777
	}
	letters := info.Mode[max(0, len(info.Mode)-9):]
	var mode fs.FileMode
	for _, c := range letters {
		mode <<= 1
		if c != '-' {
			mode |= 1
		}
	}
	return mode & 0o777
}

func (d *downloader) getFolder(ctx context.Context, source, to string) error {
	r, err := d.session.files.ReadArchive(ctx, d.id, source, d.user, bothy.ArchiveOptions{})
	if err != nil {
		return err
	}
	defer r.Close()
	bar := newProgress(d.app.stderr)
	defer bar.done()
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	refused, err := unpack(meter(r, bar, source, 0), to)
	bar.done()
	for _, what := range refused {
		d.app.warn("did not copy %s", what)
	}
	if err == nil && len(refused) > 0 {
		err = fmt.Errorf("%d entries of %s:%s were not copied", len(refused), d.id, source)
	}
	return err
}
