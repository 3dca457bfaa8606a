package work

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/bothy-dev/bothy"
)

// checked returns a command's output, unless it failed.
func checked(args []string, r *bothy.ExecResult, err error) (string, error) {
	if err != nil {
		return "", err
	}
	if r.ExitCode != 0 {
		return "", fmt.Errorf("%s ended with %d: %s%s", strings.Join(args, " "), r.ExitCode, r.Stderr, r.Hint)
	}
	return r.Stdout, nil
}

// single is an archive of one file.
func single(name, content string) io.Reader {
	var out strings.Builder
	w := tar.NewWriter(&out)
	_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))})
	_, _ = io.WriteString(w, content)
	_ = w.Close()
	return strings.NewReader(out.String())
}

// archiveOf is an archive of all files of a folder, which belong to root in it.
func archiveOf(folder string) io.ReadCloser {
	r, w := io.Pipe()
	go func() {
		t := tar.NewWriter(w)
		w.CloseWithError(errors.Join(addAll(t, os.DirFS(folder)), t.Close()))
	}()
	return r
}

func addAll(t *tar.Writer, files fs.FS) error {
	return fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		h := &tar.Header{Name: name, Mode: 0o755, ModTime: info.ModTime()}
		if e.IsDir() {
			h.Typeflag, h.Name = tar.TypeDir, name+"/"
			return t.WriteHeader(h)
		}
		h.Size = info.Size()
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		f, err := files.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(t, f)
		return err
	})
}
