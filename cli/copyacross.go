package cli

import (
	"context"
	"path"
	"strings"

	"github.com/bothy-dev/bothy"
)

// copyAcross copies from one sandbox to another; the bytes pass through this program and are not
// stored.
func (a *app) copyAcross(ctx context.Context, s *session, from string, sources []string, to place, user string) error {
	up := &uploader{app: a, session: s, id: to.sandbox, user: user}
	_, isDir, err := up.look(ctx, to.path)
	if err != nil {
		return err
	}
	into := isDir || strings.HasSuffix(to.path, "/")
	for _, source := range sources {
		target := to.path
		if name := baseName(path.Clean(source) + dotSuffix(source)); into && name != "" {
			target = path.Join(target, name)
		}
		if err := a.copyOneAcross(ctx, s, up, from, source, target); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) copyOneAcross(ctx context.Context, s *session, up *uploader, from, source, target string) error {
	info, err := s.files.Stat(ctx, from, source, up.user)
	if err != nil {
		return err
	}
	if info.Type != bothy.FileDirectory {
		r, info, err := s.files.Read(ctx, from, source, up.user)
		if err != nil {
			return err
		}
		defer r.Close()
		options := bothy.WriteOptions{Mode: uint32(filePerm(info)), User: up.user, ModifiedAt: info.ModifiedAt, Size: info.Size}
		_, err = s.files.Write(ctx, up.id, target, r, options)
		return err
	}
	r, err := s.files.ReadArchive(ctx, from, source, up.user, bothy.ArchiveOptions{})
	if err != nil {
		return err
	}
	defer r.Close()
	if err := up.mkdir(ctx, target); err != nil {
		return err
	}
	return s.files.WriteArchive(ctx, up.id, target, up.user, r)
}
