package bounded

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

func gz(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func xzOf(t testing.TB, c xz.WriterConfig, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := c.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zst(t testing.TB, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return w.EncodeAll(data, nil)
}

func plain(t testing.TB, data []byte, n int64) ([]byte, error) {
	t.Helper()
	r, err := Decompress(t.Context(), bytes.NewReader(data), n)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// text can be compressed, but not to nothing.
func text(size int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, size)
	for i := range b {
		b[i] = "abcdefgh"[r.IntN(8)]
	}
	return b
}

func TestDecompress(t *testing.T) {
	data := text(100_000)
	bz, err := hex.DecodeString("425a68393141592653594eece83600000251800010400006449080200031064c4101a7a9a580bb9431f8bb9229c28482776741b0") // hello world\n
	if err != nil {
		t.Fatal(err)
	}
	two := xzOf(t, xz.WriterConfig{}, data[:1000])
	for name, c := range map[string]struct{ in, want []byte }{
		"nothing":           {nil, nil},
		"short":             {[]byte("abc"), []byte("abc")},
		"plain":             {data, data},
		"gzip":              {gz(t, data), data},
		"bzip2":             {bz, []byte("hello world\n")},
		"xz":                {xzOf(t, xz.WriterConfig{}, data), data},
		"xz, no checksum":   {xzOf(t, xz.WriterConfig{NoCheckSum: true}, data), data},
		"xz, CRC32":         {xzOf(t, xz.WriterConfig{CheckSum: xz.CRC32}, data), data},
		"xz, SHA-256":       {xzOf(t, xz.WriterConfig{CheckSum: xz.SHA256}, data[:10_001]), data[:10_001]},
		"xz, blocks":        {xzOf(t, xz.WriterConfig{BlockSize: 30_000, DictCap: 1 << 16}, data), data},
		"xz, two streams":   {append(append(bytes.Clone(two), 0, 0, 0, 0), two...), append(bytes.Clone(data[:1000]), data[:1000]...)},
		"xz, no content":    {xzOf(t, xz.WriterConfig{}, nil), nil},
		"zstd":              {zst(t, data), data},
		"zstd, two streams": {append(zst(t, data), zst(t, data)...), append(bytes.Clone(data), data...)},
	} {
		got, err := plain(t, c.in, int64(len(c.want)))
		if err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if len(c.want) == 0 {
			continue
		}
		_, err = plain(t, c.in, int64(len(c.want))-1)
		exceeds(t, err, "bytes")
		if bytes.Equal(c.in, c.want) {
			continue
		}
		if got, err := plain(t, c.in[:len(c.in)-3], 1<<30); err == nil {
			t.Errorf("%s: without its end, it has %d bytes", name, len(got))
		}
	}
}

func TestGunzip(t *testing.T) {
	data := text(1000)
	if got, err := io.ReadAll(Gunzip(t.Context(), bytes.NewReader(gz(t, data)), 1000)); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_, err := io.ReadAll(Gunzip(t.Context(), bytes.NewReader(gz(t, data)), 999))
	exceeds(t, err, "more than 999 bytes")
	if _, err := io.ReadAll(Gunzip(t.Context(), bytes.NewReader(data), 1000)); !errors.Is(err, gzip.ErrHeader) {
		t.Errorf("what is not compressed: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrClosedPipe)
	if _, err := io.ReadAll(Gunzip(ctx, bytes.NewReader(gz(t, data)), 1000)); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("after its context has ended: %v", err)
	}
}

func TestDamagedXZ(t *testing.T) {
	data := text(1000)
	good := xzOf(t, xz.WriterConfig{DictCap: 1 << 12}, data)
	for at := range len(good) - 28 { // the index is not compared
		bad := bytes.Clone(good)
		bad[at] ^= 0x10
		if got, err := plain(t, bad, 1<<20); err == nil && !bytes.Equal(got, bad) && !bytes.Equal(got, data) {
			t.Errorf("with byte %d changed, it has other content", at)
		}
	}
}

// greedy is an xz stream of some bytes that asks for a dictionary of 4 GiB.
func greedy(t testing.TB) []byte {
	b := xzOf(t, xz.WriterConfig{}, text(200))
	head := b[12 : 12+(int(b[12])+1)*4]
	at := bytes.Index(head, []byte{0x21, 1}) + 2
	head[at] = 40
	binary.LittleEndian.PutUint32(head[len(head)-4:], crc32.ChecksumIEEE(head[:len(head)-4]))
	return b
}

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestDictionariesAreLimited(t *testing.T) {
	used := allocated(func() {
		_, err := plain(t, greedy(t), 1<<30)
		exceeds(t, err, "its dictionary has more than 64 MB")
	})
	if used > 64<<20 { // the writer takes 40
		t.Errorf("it took %d MB", used>>20)
	}
	var many []byte
	one := xzOf(t, xz.WriterConfig{DictCap: 8 << 20}, []byte("x"))
	for range 20 {
		many = append(many, one...)
	}
	_, err := plain(t, many, 1<<30)
	exceeds(t, err, "the dictionaries of its blocks have more than")

	w, err := zstd.NewWriter(nil, zstd.WithWindowSize(128<<20))
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	w.Reset(&b)
	for range 4 { // a stream, whose size is unknown
		if _, err := w.Write(text(1 << 20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = plain(t, b.Bytes(), 1<<30)
	exceeds(t, err, "more than 64 MB in its window")
}

func TestBombsAreRefused(t *testing.T) {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for range 140 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = plain(t, b.Bytes(), 1<<30)
	exceeds(t, err, "bytes expand to more than")
	r, err := Decompress(t.Context(), bytes.NewReader(gz(t, make([]byte, 2*freeOutput))), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n, err := io.Copy(io.Discard, r); err != nil || n != 2*freeOutput {
		t.Errorf("gzip of zeros: %d bytes, %v", n, err)
	}
}

func TestDecompressionEnds(t *testing.T) {
	for name, in := range map[string][]byte{"gzip": gz(t, text(1<<20)), "xz": xzOf(t, xz.WriterConfig{}, text(200_000)), "zstd": zst(t, text(1<<20)), "plain": text(1 << 20)} {
		ctx, cancel := context.WithCancelCause(t.Context())
		r, err := Decompress(ctx, bytes.NewReader(in), 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(make([]byte, 10)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel(io.ErrClosedPipe)
		if _, err := io.ReadAll(r); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s goes on after its context: %v", name, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	r, err := Decompress(t.Context(), bytes.NewReader(zst(t, text(1<<20))), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	if _, err := io.ReadAll(r); !errors.Is(err, zstd.ErrDecoderClosed) {
		t.Errorf("zstd is not closed: %v", err)
	}
}

// FuzzDecompress looks for input that takes much memory, or a panic.
func FuzzDecompress(f *testing.F) {
	f.Add(greedy(f))
	f.Add(gz(f, make([]byte, 1<<20)))
	f.Add(xzOf(f, xz.WriterConfig{BlockSize: 100, DictCap: 1 << 12}, text(500)))
	f.Add(zst(f, text(500)))
	f.Add([]byte("BZh91AY&SY"))
	f.Add([]byte(xzMagic + strings.Repeat("\x00", 100)))
	f.Fuzz(func(t *testing.T, data []byte) {
		const most = 8 << 20
		used := allocated(func() {
			r, err := Decompress(t.Context(), bytes.NewReader(data), most)
			if err != nil {
				return
			}
			defer r.Close()
			if n, _ := io.Copy(io.Discard, r); n > most {
				t.Errorf("%d bytes", n)
			}
		})
		if used > 4*MaxWindow {
			t.Errorf("%d bytes took %d MB", len(data), used>>20)
		}
	})
}

// FuzzJSON looks for documents in which the check and the decoder see something else.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"type":1,"type":2}`))
	f.Add([]byte(`[[[[[[1,{"a\"":[]}]]]]]]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var v map[string]any
		if JSON(t.Context(), bytes.NewReader(data), &v, JSONLimits{Bytes: 1 << 16, Depth: 10, Values: 100}) != nil {
			return
		}
		if d := depth(v); d > 10 {
			t.Errorf("it has %d levels", d)
		}
	})
}

func headers(names ...string) (list []tar.Header) {
	for _, name := range names {
		list = append(list, tar.Header{Name: name})
	}
	return list
}

func depth(v any) (most int) {
	switch x := v.(type) {
	case map[string]any:
		for _, inner := range x {
			most = max(most, depth(inner))
		}
	case []any:
		for _, inner := range x {
			most = max(most, depth(inner))
		}
	default:
		return 0
	}
	return most + 1
}

// FuzzTar looks for names that pass.
func FuzzTar(f *testing.F) {
	f.Add(tarOf(f, headers("a/b", "c")...))
	f.Add(tarOf(f, headers(strings.Repeat("n", 5000))...))
	f.Add(tarOf(f, headers(strings.Repeat("d/", 2000))...))
	f.Fuzz(func(t *testing.T, data []byte) {
		names, _ := walk(t.Context(), data, 10)
		for _, name := range names {
			if err := CheckPath(name); err != nil {
				t.Error(err)
			}
		}
		if len(names) > 10 {
			t.Errorf("%d entries", len(names))
		}
	})
}
