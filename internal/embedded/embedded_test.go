package embedded

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/bothy-dev/bothy"
	"github.com/klauspost/compress/zstd"
)

// packed is a folder bin with the two given contents.
func packed(t *testing.T, guest, sentry []byte) fstest.MapFS {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	part := func(data []byte) Part {
		sum := sha256.Sum256(data)
		return Part{Digest: hex.EncodeToString(sum[:]), Size: int64(len(data))}
	}
	index, err := json.Marshal(Index{Guest: part(guest), Sentry: part(sentry), Vminit: part([]byte("vminit"))})
	if err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{
		"bin/index.json":      {Data: index},
		"bin/guest.erofs.zst": {Data: z.EncodeAll(guest, nil)},
		"bin/sentry.zst":      {Data: z.EncodeAll(sentry, nil)},
		"bin/vminit.zst":      {Data: z.EncodeAll([]byte("vminit"), nil)},
	}
}

func TestExtractWritesAllPartsUnderTheirDigests(t *testing.T) {
	guest, sentry := []byte("the guest"), bytes.Repeat([]byte("sentry"), 1<<16)
	dir := filepath.Join(t.TempDir(), "not", "there")
	p, err := extract(packed(t, guest, sentry), dir)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]byte{p.GuestImage: guest, p.Sentry: sentry, p.Vminit: []byte("vminit")} {
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s has %d bytes, %v; want %d", path, len(got), err, len(want))
		}
		sum := sha256.Sum256(want)
		if !strings.Contains(path, hex.EncodeToString(sum[:])[:12]) {
			t.Errorf("%s does not carry its digest", path)
		}
	}
	if info, _ := os.Stat(p.Sentry); info.Mode().Perm() != 0o755 {
		t.Errorf("the sentry has mode %v", info.Mode())
	}
}

func TestExtractByManyAtOnceLeavesOnlyWholeFiles(t *testing.T) {
	from := packed(t, []byte("guest"), bytes.Repeat([]byte("x"), 1<<20))
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			p, err := extract(from, dir)
			if err != nil {
				t.Error(err)
				return
			}
			if info, err := os.Stat(p.Sentry); err != nil || info.Size() != 1<<20 {
				t.Errorf("the sentry is not whole: %v, %v", info, err)
			}
		})
	}
	wg.Wait()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("the folder holds %v, %v; want the three parts alone", entries, err)
	}
}

func TestExtractRepairsATornFile(t *testing.T) {
	from := packed(t, []byte("guest"), []byte("sentry"))
	dir := t.TempDir()
	p, err := extract(from, dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(p.Sentry, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := extract(from, dir); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(p.Sentry); string(got) != "sentry" {
		t.Errorf("the sentry is still %q", got)
	}
}

func TestExtractRefusesAPartOfTheWrongSize(t *testing.T) {
	from := packed(t, []byte("guest"), []byte("sentry"))
	from["bin/sentry.zst"] = packed(t, nil, []byte("another one"))["bin/sentry.zst"]
	dir := t.TempDir()
	if _, err := extract(from, dir); err == nil {
		t.Fatal("a part of the wrong size was extracted")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".extract-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestWithoutPartsExtractNamesTheCure(t *testing.T) {
	_, err := extract(fstest.MapFS{}, t.TempDir())
	if got := bothy.ErrorCode(err); got != bothy.CodeEngineMissing {
		t.Fatalf("code %s, want %s", got, bothy.CodeEngineMissing)
	}
	if e := bothy.AsError(err); !strings.Contains(e.Hint, "make build") {
		t.Errorf("the hint is %q", e.Hint)
	}
}

func BenchmarkExtractAgain(b *testing.B) {
	from := packed(&testing.T{}, []byte("guest"), bytes.Repeat([]byte("x"), 1<<20))
	dir := b.TempDir()
	for b.Loop() {
		if _, err := extract(from, dir); err != nil {
			b.Fatal(err)
		}
	}
}
