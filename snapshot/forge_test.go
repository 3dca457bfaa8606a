package snapshot

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/bothy-dev/bothy"
)

// piece is a part as it is in an archive.
type piece struct {
	name string
	data []byte
}

// plan describes a forged archive. Fields that are not set are correct.
type plan struct {
	parts  []piece
	skip   string                  // is listed and not there
	change func(*Manifest)         // of what is said of the parts
	text   string                  // of the manifest
	key    *Key                    // signs it
	resign func(map[string]string) // changes the signature
	after  func([]byte) []byte     // changes the manifest that was signed
}

func archive(t *testing.T, p plan) []byte {
	t.Helper()
	dir := t.TempDir()
	m := &Manifest{Version: Version, ID: "snp1", Kind: bothy.SnapshotFiles, GuestKey: "door", Detail: "as somebody says"}
	for i, part := range p.parts {
		path := filepath.Join(dir, "part")
		if err := os.WriteFile(path, part.data, 0o600); err != nil {
			t.Fatal(err)
		}
		sums, err := sum(t.Context(), dir, "part", true)
		if err != nil {
			t.Fatal(err)
		}
		sums.Name = part.name
		m.Parts = append(m.Parts, sums)
		if i > 0 || part.name != FilesTar {
			m.Kind = bothy.SnapshotMemory
		}
	}
	if p.change != nil {
		p.change(m)
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if p.text != "" {
		text = []byte(p.text)
	}
	h := &tar.Header{Name: ManifestName, Mode: 0o600, Format: tar.FormatPAX}
	if p.key != nil {
		if h.PAXRecords, err = p.key.sign(text); err != nil {
			t.Fatal(err)
		}
	}
	if p.resign != nil {
		p.resign(h.PAXRecords)
	}
	if p.after != nil {
		text = p.after(text)
	}
	return pack(t, func(w *tar.Writer) {
		h.Size = int64(len(text))
		put(t, w, h, text)
		for _, part := range p.parts {
			if part.name != p.skip {
				put(t, w, &tar.Header{Name: part.name, Size: int64(len(part.data)), Mode: 0o600}, part.data)
			}
		}
	})
}

func put(t *testing.T, w *tar.Writer, h *tar.Header, data []byte) {
	t.Helper()
	if err := w.WriteHeader(h); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
}

func pack(t *testing.T, fill func(*tar.Writer)) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	fill(w)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// headersWithoutEnd is a tar of a given size, made of headers for a file that never follows.
func headersWithoutEnd(t *testing.T, size int) []byte {
	t.Helper()
	var one bytes.Buffer
	w := tar.NewWriter(&one)
	comment := map[string]string{"BOTHY.padding": strings.Repeat("x", 512<<10)}
	if err := w.WriteHeader(&tar.Header{Name: "x", Format: tar.FormatPAX, PAXRecords: comment}); err != nil {
		t.Fatal(err)
	}
	header := one.Bytes()[:one.Len()-512] // without that of the file
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for range size / len(header) {
		if _, err := z.Write(header); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// skippable is a frame that decoders skip.
func skippable(size uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 0x184D2A50)
	return append(binary.LittleEndian.AppendUint32(b, size), make([]byte, size)...)
}

// counted counts the bytes that are read.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func written(t *testing.T, dir string) (sum int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			sum += storedBytes(info)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// watched is a context that signals when two goroutines wait for its end.
type watched struct {
	context.Context
	mu    sync.Mutex
	left  int
	asked chan struct{}
}

func (w *watched) Done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left--; w.left == 0 {
		close(w.asked)
	}
	return w.Context.Done()
}

func contextThatEndsWhenAsked(t *testing.T) (*watched, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	return &watched{Context: ctx, left: 2, asked: make(chan struct{})}, cancel
}
