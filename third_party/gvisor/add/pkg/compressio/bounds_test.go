package compressio

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"io"
	"runtime"
	"strings"
	"testing"
)

func compressed(t *testing.T, chunk uint32, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, nil, chunk, flate.BestSpeed)
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

func decompressed(b []byte) ([]byte, error) {
	r, err := NewReader(io.NopCloser(bytes.NewReader(b)), nil)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

func TestChunksAreBounded(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	whole := compressed(t, 1<<16, data)
	if got, err := decompressed(whole); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d of %d bytes come back: %v", len(got), len(data), err)
	}
	for _, c := range []struct {
		name string
		at   int
		put  uint32
		says string
	}{
		{"chunks of 2 GB", 0, 1 << 31, "compressed chunks of 2147483648 bytes"},
		{"chunks of nothing", 0, 0, "compressed chunks of 0 bytes"},
		{"chunks that have more in them", 0, 1 << 15, errChunkSize.Error()},
		{"a chunk that takes 3 GB", 4, 3 << 30, "a compressed chunk has 3221225472 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := bytes.Clone(whole)
			binary.BigEndian.PutUint32(b[c.at:], c.put)
			if _, err := decompressed(b); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("it is %v, not %q", err, c.says)
			}
		})
	}
}

// A megabyte of a file must not become a gigabyte of memory at once.
func TestBombIsRefused(t *testing.T) {
	bomb := compressed(t, 1<<28, make([]byte, 1<<28))
	binary.BigEndian.PutUint32(bomb, 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := NewReader(io.NopCloser(bytes.NewReader(bomb)), nil)
	if err == nil {
		_, err = r.Read(make([]byte, 1<<20))
	}
	runtime.ReadMemStats(&after)
	if err == nil {
		t.Error("it is decompressed")
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Errorf("%d bytes take %d of memory", len(bomb), used)
	}
}

// Who decodes a compressed stream knows how much may come of it.
func TestSourceIsKnown(t *testing.T) {
	in := io.NopCloser(bytes.NewReader(compressed(t, 1<<16, []byte("content"))))
	r, err := NewReader(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if source, times := r.Source(); source != any(in) || times != maxRatio {
		t.Errorf("it is read from %v, of which there is %d times as much", source, times)
	}
}
