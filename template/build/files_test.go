package build

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/template/tree"
)

// A context of 10 KB whose file has a long name killed the server, and again at each start.
func TestContextsWithLongPathsAreRefused(t *testing.T) {
	w := newWorld(t)
	for words, name := range map[string]string{
		"more than 255 bytes in a name":   strings.Repeat("n", 4084),
		"more than 4095 bytes in a path":  strings.Repeat("n", 10_000),
		"more than 256 levels of folders": strings.Repeat("d/", 300) + "f",
	} {
		_, err := w.UploadContext(w.me(), bytes.NewReader(tarOf("Dockerfile", "FROM scratch", name, "")))
		e := bothy.AsError(err)
		if err == nil || e.Code != bothy.CodeInvalid || !strings.Contains(e.Detail, words) || len(e.Detail) > 300 {
			t.Errorf("%s: %v", words, err)
		}
	}
}

func compressed(t testing.TB, how string, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var w interface {
		Write([]byte) (int, error)
		Close() error
	}
	var err error
	switch how {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "xz":
		w, err = xz.WriterConfig{DictCap: 1 << 16}.NewWriter(&b)
	case "zstd":
		w, err = zstd.NewWriter(&b)
	default:
		return data
	}
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// unpacked is what ADD makes of a file.
func unpacked(t testing.TB, ctx context.Context, data []byte) (*tree.Tree, error) {
	j := &job{b: &Builder{free: func(string) (int64, error) { return 1 << 40, nil }}, work: t.TempDir()}
	return j.unpack(ctx, &tree.Node{Data: tree.Text(string(data))})
}

func TestArchivesAreUnpacked(t *testing.T) {
	archive := tarOf("a/f", "text", "b", "")
	var pax bytes.Buffer
	p := tar.NewWriter(&pax)
	if err := p.WriteHeader(&tar.Header{Name: strings.Repeat("d/", 120) + "f", Format: tar.FormatPAX, Size: 0}); err != nil {
		t.Fatal(err)
	}
	p.Close()
	for _, how := range []string{"gzip", "xz", "zstd", ""} {
		before := runtime.NumGoroutine()
		files, err := unpacked(t, t.Context(), compressed(t, how, archive))
		if err != nil || files == nil {
			t.Fatalf("%s: %v", how, err)
		}
		if n, err := files.Get("a/f"); err != nil || n.Data.Size != 4 {
			t.Errorf("%s: %v", how, err)
		}
		for limit := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) { // the last is ending
			if time.Now().After(limit) {
				t.Fatalf("%s leaves %d goroutines", how, runtime.NumGoroutine()-before)
			}
		}
		if files, err := unpacked(t, t.Context(), compressed(t, how, pax.Bytes())); err != nil || files == nil {
			t.Errorf("%s, an extended header first: %v", how, err)
		}
		for _, other := range [][]byte{[]byte("text"), make([]byte, 2000), []byte(strings.Repeat("text", 500))} {
			if files, err := unpacked(t, t.Context(), compressed(t, how, other)); err != nil || files != nil {
				t.Errorf("%s of something else is an archive, %v", how, err)
			}
		}
	}
}

// greedy is an xz stream of some bytes that asks for a dictionary of 4 GiB.
func greedy(t testing.TB) []byte {
	b := compressed(t, "xz", []byte(strings.Repeat("nothing ", 20)))
	head := b[12 : 12+(int(b[12])+1)*4]
	head[bytes.Index(head, []byte{0x21, 1})+2] = 40
	binary.LittleEndian.PutUint32(head[len(head)-4:], crc32.ChecksumIEEE(head[:len(head)-4]))
	return b
}

func TestArchivesTakeNoMoreThanTheyMay(t *testing.T) {
	small := greedy(t)
	if len(small) > 148 {
		t.Errorf("it has %d bytes", len(small))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	files, err := unpacked(t, t.Context(), small)
	runtime.ReadMemStats(&after)
	if files != nil || err == nil || !strings.Contains(err.Error(), "its dictionary has more than 64 MB") {
		t.Errorf("a dictionary of 4 GiB: %v", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 8<<20 {
		t.Errorf("%d bytes take %d MB", len(small), n>>20)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(context.Canceled)
	for _, how := range []string{"gzip", "xz", "zstd"} {
		if files, err := unpacked(t, ctx, compressed(t, how, tarOf("f", strings.Repeat("x", 1<<20)))); files != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%s is unpacked for nobody: %v", how, err)
		}
	}
}

// FuzzUnpack looks for archives that take much memory.
func FuzzUnpack(f *testing.F) {
	f.Add(greedy(f))
	for _, how := range []string{"gzip", "xz", "zstd", ""} {
		f.Add(compressed(f, how, tarOf("a/f", "text", strings.Repeat("n", 4085), "")))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = unpacked(t, t.Context(), data)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 512<<20 {
			t.Errorf("%d bytes take %d MB", len(data), n>>20)
		}
	})
}
