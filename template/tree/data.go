package tree

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
)

// Data locates the bytes of a regular file: a part of a file on the host, which must not change
// while the tree is used, or the text itself.
type Data struct {
	Path   string
	Offset int64
	Size   int64
	Text   string // if Path is ""
}

// Text returns data that is in memory.
func Text(s string) Data { return Data{Size: int64(len(s)), Text: s} }

// Open returns the bytes. The caller closes it.
func (d Data) Open() (io.ReadCloser, error) {
	s := sources{}
	r, err := s.open(d)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{r, s}, nil
}

// Read returns at most limit of the bytes.
func (d Data) Read(limit int64) ([]byte, error) {
	r, err := d.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, limit))
}

// ReadIn is Read where the bytes are in an open file, which stands for Path.
func (d Data) ReadIn(file io.ReaderAt, limit int64) ([]byte, error) {
	if d.Path == "" || file == nil {
		return d.Read(limit)
	}
	return io.ReadAll(io.LimitReader(io.NewSectionReader(file, d.Offset, d.Size), limit))
}

// sources are the open host files that data are read from.
type sources map[string]*os.File

func (s sources) open(d Data) (io.Reader, error) {
	if d.Path == "" {
		return strings.NewReader(d.Text), nil
	}
	f, err := s.file(d.Path)
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(f, d.Offset, d.Size), nil
}

func (s sources) file(path string) (*os.File, error) {
	if s[path] == nil {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		s[path] = f
	}
	return s[path], nil
}

// Close implements io.Closer.
func (s sources) Close() error {
	var errs []error
	for _, f := range s {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// same reports whether two data have equal bytes.
func (s sources) same(ctx context.Context, d, o Data) (bool, error) {
	if d.Size != o.Size {
		return false, nil
	}
	if d == o || d.Size == 0 {
		return true, nil
	}
	a, err := s.open(d)
	if err != nil {
		return false, err
	}
	b, err := s.open(o)
	if err != nil {
		return false, err
	}
	size := min(d.Size, 128<<10)
	one, two := make([]byte, size), make([]byte, size)
	for left := d.Size; left > 0; {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		n := min(left, int64(len(one)))
		if _, err := io.ReadFull(a, one[:n]); err != nil {
			return false, err
		}
		if _, err := io.ReadFull(b, two[:n]); err != nil {
			return false, err
		}
		if !bytes.Equal(one[:n], two[:n]) {
			return false, nil
		}
		left -= n
	}
	return true, nil
}
