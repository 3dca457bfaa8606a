package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/bothy-dev/bothy"
)

// holed makes a file of size bytes with some data at each place.
func holed(t *testing.T, path string, size int64, data map[int64]string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for at, s := range data {
		if _, err := f.WriteAt([]byte(s), at); err != nil {
			t.Fatal(err)
		}
	}
}

func TestZerosCRCIsThatOfZeros(t *testing.T) {
	for _, n := range []int64{0, 1, 2, 7, 4096, 70_001, 1 << 20} {
		begin := crc32.Checksum([]byte("begin"), castagnoli)
		if got, want := zerosCRC(begin, n), crc32.Update(begin, castagnoli, make([]byte, n)); got != want {
			t.Errorf("%d zeros: %08x, want %08x", n, got, want)
		}
	}
}

func TestSparseFilesHaveTheCRCOfTheWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int64{1 << 20, 1<<20 + 5, 3*sparseBlock - 1} {
		dir := t.TempDir()
		data := map[int64]string{}
		for range 3 {
			data[r.Int64N(size-3)] = "abc"
		}
		data[size-1] = "z"
		holed(t, filepath.Join(dir, "ram"), size, data)
		got, err := sumSparse(t.Context(), dir, Part{Name: "ram", Sparse: true}, true)
		if err != nil {
			t.Fatal(err)
		}
		whole, err := sum(t.Context(), dir, "ram", true)
		if err != nil {
			t.Fatal(err)
		}
		if got.CRC32C != whole.CRC32C || got.Size != whole.Size || got.Stored >= size+sparseBlock {
			t.Errorf("got %+v, want %+v", got, whole)
		}
		// The same content without holes.
		full, err := os.ReadFile(filepath.Join(dir, "ram"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "full"), full, 0o600); err != nil {
			t.Fatal(err)
		}
		same, err := sumSparse(t.Context(), dir, Part{Name: "full", Sparse: true}, true)
		if err != nil || same.SHA256 != got.SHA256 || same.CRC32C != got.CRC32C {
			t.Errorf("without holes %+v, %v; want %+v", same, err, got)
		}
		if want := blocksSHA(full); got.SHA256 != want {
			t.Errorf("SHA-256 %s, want %s", got.SHA256, want)
		}
	}
}

// blocksSHA is the SHA-256 of a sparse file as the format defines it.
func blocksSHA(full []byte) string {
	h := sha256.New()
	for i := 0; i*sparseBlock < len(full); i++ {
		block := full[i*sparseBlock : min(len(full), (i+1)*sparseBlock)]
		if bytes.Count(block, []byte{0}) == len(block) {
			continue
		}
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(i)))
		h.Write(block)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// sparseSnapshot is a snapshot of a large, mostly empty memory.
func sparseSnapshot(t *testing.T) (string, *Manifest) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, MemoryDir), 0o700); err != nil {
		t.Fatal(err)
	}
	holed(t, filepath.Join(dir, MemoryDir, "ram"), 128<<20, map[int64]string{5: "first", 70 << 20: "second", 128<<20 - 2: "la"})
	for _, name := range []string{MemoryDir + "/devices", FilesTar} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("small"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := &Manifest{ID: "snp1", SandboxID: "sbx1", Kind: bothy.SnapshotMemory}
	if err := Seal(t.Context(), dir, m); err != nil {
		t.Fatal(err)
	}
	return dir, m
}

func TestASparseSnapshotCountsItsAllocatedSize(t *testing.T) {
	dir, m := sparseSnapshot(t)
	if m.Size() > 4<<20 {
		t.Errorf("it counts as %d bytes", m.Size())
	}
	for _, strong := range []bool{false, true} {
		if err := Verify(t.Context(), dir, m, strong); err != nil {
			t.Error(err)
		}
	}
}

func TestADamagedSparseFileIsFound(t *testing.T) {
	for _, at := range []int64{5, 30 << 20, 128<<20 - 1} {
		dir, m := sparseSnapshot(t)
		f, err := os.OpenFile(filepath.Join(dir, MemoryDir, "ram"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.WriteAt([]byte{0x55}, at)
		f.Close()
		err = Verify(t.Context(), dir, m, false)
		if got := bothy.ErrorCode(err); got != bothy.CodeSnapshotDamaged {
			t.Errorf("a byte at %d: %v", at, err)
		}
	}
}

func TestASparseSnapshotStaysSparseInTransit(t *testing.T) {
	dir, m := sparseSnapshot(t)
	var archive bytes.Buffer
	if err := Export(t.Context(), &archive, dir, m, "", ours); err != nil {
		t.Fatal(err)
	}
	if archive.Len() > 1<<20 {
		t.Errorf("the archive has %d bytes", archive.Len())
	}
	to := t.TempDir()
	got, err := Import(t.Context(), &archive, to, unlimited(""))
	if err != nil {
		t.Fatal(err)
	}
	if got.Size() > 4<<20 {
		t.Errorf("it now counts as %d bytes", got.Size())
	}
	info, err := os.Stat(filepath.Join(to, MemoryDir, "ram"))
	if err != nil || storedBytes(info) > 4<<20 {
		t.Errorf("it takes up %d bytes, %v", storedBytes(info), err)
	}
}
