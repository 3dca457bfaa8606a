// Command pybundle writes a relocatable CPython as one tar file, for templates.
//
// The interpreter comes from a Go module, so that go.sum verifies it and nothing is
// downloaded when a template is built. It is a separate program to keep its 70 MB
// out of bothy. Only the Makefile runs it.
package main

import (
	"archive/tar"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/kluctl/go-embed-python/pip"
	"github.com/kluctl/go-embed-python/python"
)

// links are files that the module stores as copies of another file.
var links = map[string]string{
	"bin/python":             "python3.12",
	"bin/python3":            "python3.12",
	"lib/libpython3.12.so":   "libpython3.12.so.1.0",
	"bin/python3-config":     "",
	"bin/python3.12-config":  "",
	"bin/2to3":               "",
	"bin/2to3-3.12":          "",
	"bin/idle3":              "",
	"bin/idle3.12":           "",
	"bin/pip":                "",
	"bin/pip3":               "",
	"bin/pip3.12":            "",
	"bin/pydoc3":             "",
	"bin/pydoc3.12":          "",
	"lib/python3.12/tkinter": "",
}

func main() {
	out := flag.String("o", "python-3.12.tar.zst", "the `file` to write")
	flag.Parse()
	if err := write(*out); err != nil {
		fmt.Fprintln(os.Stderr, "pybundle:", err)
		os.Exit(1)
	}
}

func write(out string) error {
	dir, err := os.MkdirTemp(filepath.Dir(out), ".pybundle-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := extract(dir); err != nil {
		return err
	}
	tmp := filepath.Join(dir, "bundle")
	if err := pack(tmp, filepath.Join(dir, "python")); err != nil {
		return err
	}
	return os.Rename(tmp, out)
}

// extract unpacks the interpreter and its pip into dir/python.
func extract(dir string) error {
	py, err := python.NewEmbeddedPythonWithTmpDir(filepath.Join(dir, "python"), false)
	if err != nil {
		return fmt.Errorf("extract the interpreter: %w", err)
	}
	lib, err := pip.NewPipLib(fmt.Sprintf("bothy-%d", os.Getpid()))
	if err != nil {
		return fmt.Errorf("extract pip: %w", err)
	}
	defer lib.Cleanup()
	site := filepath.Join(py.GetExtractedPath(), "lib/python3.12/site-packages")
	if err := os.CopyFS(site, os.DirFS(lib.GetExtractedPath())); err != nil {
		return err
	}
	return strip(py.GetExtractedPath())
}

// strip removes the debug information: 190 of the library's 210 MB.
func strip(dir string) error {
	tool, err := exec.LookPath("strip")
	if err != nil {
		return errors.New("strip is missing: apt-get install binutils")
	}
	for _, name := range []string{"bin/python3.12", "lib/libpython3.12.so.1.0"} {
		cmd := exec.Command(tool, "--strip-unneeded", filepath.Join(dir, name))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("strip %s: %w: %s", name, err, out)
		}
	}
	return nil
}

// pack writes the tree as a compressed tar, the same bytes for the same tree.
func pack(out, dir string) (err error) {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := zstd.NewWriter(f, zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil || rel == "." {
			return err
		}
		return add(w, path, rel, d)
	})
	return errors.Join(err, w.Close(), z.Close())
}

func add(w *tar.Writer, path, rel string, d fs.DirEntry) error {
	if target, ok := links[rel]; ok {
		return addLink(w, rel, target, d)
	}
	if strings.HasPrefix(rel, "lib/python3.12/site-packages/bin") {
		return nil
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	h := &tar.Header{Name: rel, Mode: int64(info.Mode().Perm()) | 0o644}
	if d.IsDir() {
		h.Name, h.Typeflag, h.Mode = rel+"/", tar.TypeDir, 0o755
		return w.WriteHeader(h)
	}
	if strings.HasPrefix(rel, "bin/") {
		h.Mode = 0o755
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// addLink writes a symbolic link, or nothing if the target is empty.
func addLink(w *tar.Writer, rel, target string, d fs.DirEntry) error {
	if target == "" {
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	return w.WriteHeader(&tar.Header{Name: rel, Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777})
}
