package bounded

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// exceeds checks that err is an Error with these words.
func exceeds(t *testing.T, err error, words string) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(err.Error(), words) {
		t.Errorf("%v, and not %q", err, words)
	}
}

func TestReader(t *testing.T) {
	for _, r := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.OneByteReader, iotest.DataErrReader} {
		if b, err := ReadAll(t.Context(), r(strings.NewReader("12345")), 5); string(b) != "12345" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		in := Reader(t.Context(), r(strings.NewReader("123456")), 5)
		b, err := io.ReadAll(in)
		exceeds(t, err, "more than 5 bytes")
		if string(b) != "12345" {
			t.Errorf("%q", b)
		}
		_, err = in.Read(make([]byte, 1))
		exceeds(t, err, "more than 5 bytes")
	}
	exceeds(t, &Error{3 << 30, "bytes"}, "more than 3 GB")
	exceeds(t, &Error{3 << 20, "bytes"}, "more than 3 MB")
	ctx, cancel := context.WithCancelCause(t.Context())
	in := Reader(ctx, strings.NewReader("12345"), 5)
	if _, err := in.Read(make([]byte, 2)); err != nil {
		t.Error(err)
	}
	cancel(io.ErrClosedPipe)
	if n, err := in.Read(make([]byte, 2)); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%d, %v", n, err)
	}
}

func TestPaths(t *testing.T) {
	deep := strings.TrimSuffix(strings.Repeat("d/", MaxDepth), "/")
	long := strings.Repeat("n", MaxName)
	for _, fine := range []string{"", "/", "a", deep, "./" + deep + "/", long, "a/" + long + "/", strings.Repeat("a/./", 200)} {
		if err := CheckPath(fine); err != nil {
			t.Errorf("%s: %v", Short(fine), err)
		}
	}
	exceeds(t, CheckPath(deep+"/d"), "more than 256 levels of folders")
	exceeds(t, CheckPath(long+"n/a"), "more than 255 bytes in a name")
	exceeds(t, CheckPath(strings.Repeat("/", MaxPath+1)), "more than 4095 bytes in a path")
	if s := Short(strings.Repeat("é", 100)); len(s) > 110 || !strings.HasSuffix(s, "é…") {
		t.Errorf("%q", s)
	}
}

// tarOf returns a tar of entries without content.
func tarOf(t testing.TB, list ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range list {
		h.Format = tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func walk(ctx context.Context, data []byte, n int64) (names []string, err error) {
	err = Tar(ctx, bytes.NewReader(data), n, func(h *tar.Header, _ io.Reader) error {
		names = append(names, h.Name)
		return nil
	})
	return names, err
}

func TestTar(t *testing.T) {
	names, err := walk(t.Context(), tarOf(t, tar.Header{Name: "a", Size: 100_000}, tar.Header{Name: "b", Linkname: "a", Typeflag: tar.TypeLink}), 2)
	if strings.Join(names, " ") != "a b" || err != nil {
		t.Errorf("%q, %v", names, err)
	}
	long := strings.Repeat("n", 5000)
	for words, list := range map[string][]tar.Header{
		"more than 2 files":                            {{Name: "a"}, {Name: "b"}, {Name: "c"}},
		"more than 4095 bytes in a path":               {{Name: long}},
		"more than 255 bytes in a name":                {{Name: "a", Linkname: long[:256], Typeflag: tar.TypeLink}},
		"more than 256 levels of folders":              {{Name: strings.Repeat("d/", 300), Typeflag: tar.TypeDir}},
		"more than 4095 bytes in the target of a link": {{Name: "a", Linkname: long, Typeflag: tar.TypeSymlink}},
		"more than 131072 bytes of extended records":   {{Name: "a", PAXRecords: map[string]string{"SCHILY.xattr.user.a": strings.Repeat("x", 200_000)}}},
	} {
		_, err := walk(t.Context(), tarOf(t, list...), 2)
		exceeds(t, err, words)
		if len(err.Error()) > 300 {
			t.Errorf("the error has %d bytes", len(err.Error()))
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	seen := 0
	err = Tar(ctx, bytes.NewReader(tarOf(t, tar.Header{Name: "a"}, tar.Header{Name: "b"})), 10, func(*tar.Header, io.Reader) error {
		seen++
		cancel(io.ErrClosedPipe)
		return nil
	})
	if seen != 1 || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("after its context has ended, it goes on: %d entries, %v", seen, err)
	}
}

// seeks counts what is skipped.
type seeks struct {
	*bytes.Reader
	n int
}

func (s *seeks) Seek(offset int64, whence int) (int64, error) {
	s.n++
	return s.Reader.Seek(offset, whence)
}

func TestContentIsSkipped(t *testing.T) {
	data := tarOf(t, tar.Header{Name: "a", Size: 100_000}, tar.Header{Name: "b"})
	s := &seeks{Reader: bytes.NewReader(data)}
	if err := Tar(t.Context(), s, 2, func(*tar.Header, io.Reader) error { return nil }); err != nil || s.n == 0 {
		t.Errorf("%d seeks, %v", s.n, err)
	}
	if err := Tar(t.Context(), struct{ io.Reader }{bytes.NewReader(data)}, 2, func(*tar.Header, io.Reader) error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestJSON(t *testing.T) {
	limits := JSONLimits{Bytes: 100, Depth: 3, Values: 6}
	var v any
	for _, fine := range []string{`1`, `{"a":[{"b":1}],"c":"{[,\"{[,"}`, `[{"a":1},{"a":2}]`, `{"a":{"a":{"a":1}}}`} {
		if err := JSON(t.Context(), strings.NewReader(fine), &v, limits); err != nil {
			t.Errorf("%s: %v", fine, err)
		}
		if _, err := Unambiguous([]byte(fine), 3, len(fine)); err != nil {
			t.Errorf("%s: %v", fine, err)
		}
	}
	exceeds(t, JSON(t.Context(), strings.NewReader(strings.Repeat(" ", 101)), &v, limits), "more than 100 bytes")
	exceeds(t, JSON(t.Context(), strings.NewReader(`[[[[]]]]`), &v, limits), "more than 3 levels")
	exceeds(t, JSON(t.Context(), strings.NewReader(`[1,1,1,1,1,1]`), &v, limits), "more than 6 values")
	for _, twice := range []string{
		`{"type":1,"type":2}`, `{"type":1,"Type":2}`, `{"type":1,"\u0074ype":2}`, `{"a":{"k":1,"b":[2],"K":1}}`, "{\"k\":1,\"\u212a\":2}",
	} {
		if _, err := Unambiguous([]byte(twice), 3, len(twice)); err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%s: %v", twice, err)
		}
	}
	if err := JSON(t.Context(), strings.NewReader(`{"a":1,"a":2}`), &v, limits); err != nil {
		t.Error(err)
	}
	known := struct{ A int }{}
	if err := JSON(t.Context(), strings.NewReader(`{"a":1,"b":2}`), &known, limits); err != nil || known.A != 1 {
		t.Error(known, err)
	}
	limits.Known = true
	if err := JSON(t.Context(), strings.NewReader(`{"a":2,"b":2}`), &known, limits); err == nil || !strings.Contains(err.Error(), `unknown field "b"`) {
		t.Error(err)
	}
	if err := JSON(t.Context(), strings.NewReader(" \n"), &known, limits); err != io.EOF {
		t.Errorf("no document: %v", err)
	}
	for _, broken := range []string{``, `{`, `]`, `{"a":1}}`, `1 2`, `"\`, `{"a" 1}`, `{1:2}`} {
		for _, known := range []bool{false, true} {
			limits.Known = known
			if JSON(t.Context(), strings.NewReader(broken), &v, limits) == nil {
				t.Errorf("%q is JSON", broken)
			}
		}
	}
}
