package tree

import (
	"bytes"
	"io"
	"os"
	"strings"
)

// Data says where the bytes of a regular file are: a part of a file of the host, which
// stays as it is as long as the tree is used, or the text itself.
type Data struct {
	Path   string
	Offset int64
	Size   int64
	Text   string // where Path is ""
}

// Text returns data that is in memory.
func Text(s string) Data { return Data{Size: int64(len(s)), Text: s} }

// Open returns the bytes. The caller closes it.
func (d Data) Open() (io.ReadCloser, error) {
	if d.Path == "" {
		return io.NopCloser(strings.NewReader(d.Text)), nil
	}
	f, err := os.Open(d.Path)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, d.Offset, d.Size), f}, nil
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

// same reports whether two have the same bytes.
func (d Data) same(o Data) (bool, error) {
	if d.Size != o.Size {
		return false, nil
	}
	if d == o || d.Size == 0 {
		return true, nil
	}
	a, err := d.Open()
	if err != nil {
		return false, err
	}
	defer a.Close()
	b, err := o.Open()
	if err != nil {
		return false, err
	}
	defer b.Close()
	size := min(d.Size, 128<<10)
	one, two := make([]byte, size), make([]byte, size)
	for left := d.Size; left > 0; {
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
