package pgalloc

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/memutil"
	pgallocpb "gvisor.dev/gvisor/pkg/sentry/pgalloc/pgalloc_metadata_go_proto"
	"gvisor.dev/gvisor/pkg/sentry/usage"
)

func init() { log.SetLevel(log.Warning) }

func newFile(t *testing.T) *MemoryFile {
	t.Helper()
	fd, err := memutil.CreateMemFD("bounds", 0)
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewMemoryFile(os.NewFile(uintptr(fd), "bounds"), MemoryFileOpts{DisableMemoryAccounting: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Destroy)
	return f
}

// saved is what SaveTo writes of a file with some pages in it.
func saved(t *testing.T) []byte {
	t.Helper()
	f := newFile(t)
	fr, err := f.Allocate(4*hostarch.PageSize, AllocOpts{Kind: usage.Anonymous})
	if err != nil {
		t.Fatal(err)
	}
	page, err := f.MapInternal(fr, hostarch.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	copy(page.Head().ToSlice(), "content")
	var b bytes.Buffer
	if err := f.SaveTo(t.Context(), &b, &SaveOpts{}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func load(t *testing.T, r io.Reader) error {
	t.Helper()
	f := newFile(t)
	failed := make(chan error, 1)
	go func() { failed <- f.LoadFrom(t.Context(), r, &LoadOpts{}) }()
	select {
	case err := <-failed:
		return err
	case <-time.After(time.Minute):
		t.Fatal("what is loaded is awaited for ever")
		return nil
	}
}

func TestSavedMemoryIsLoaded(t *testing.T) {
	whole := saved(t)
	if err := load(t, bytes.NewReader(whole)); err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) {
		if n%13 == 0 && load(t, bytes.NewReader(whole[:n])) == nil {
			t.Fatalf("%d of %d bytes are taken for all", n, len(whole))
		}
	}
}

// Ranges that overlap, or lie beyond the file, made the kernel panic, or wait for ever.
func TestMemoryOfNoFileIsRefused(t *testing.T) {
	whole := saved(t)
	length := binary.LittleEndian.Uint64(whole)
	for name, c := range map[string]struct {
		change func(*pgallocpb.MemoryFileMetadataProto)
		says   string
	}{
		"memory beyond the file": {func(pb *pgallocpb.MemoryFileMetadataProto) { pb.MemAcct[0].End += 1 << 40 }, "memAcct has the range"},
		"an empty range":         {func(pb *pgallocpb.MemoryFileMetadataProto) { pb.MemAcct[0].End = pb.MemAcct[0].Start }, "memAcct has the range"},
		"half a page":            {func(pb *pgallocpb.MemoryFileMetadataProto) { pb.MemAcct[0].Start++ }, "does not consist of pages"},
		"memory that comes twice": {func(pb *pgallocpb.MemoryFileMetadataProto) {
			pb.MemAcct = append(pb.MemAcct, pb.MemAcct[0])
		}, "memAcct has the range"},
		"an unknown kind":   {func(pb *pgallocpb.MemoryFileMetadataProto) { pb.MemAcct[0].Kind = 77 }, "unknown kind 77"},
		"no chunks":         {func(pb *pgallocpb.MemoryFileMetadataProto) { pb.Chunks = nil }, "memAcct has the range"},
		"nothing is void":   {func(pb *pgallocpb.MemoryFileMetadataProto) { pb.UnfreeSmall = nil }, "beyond the file's"},
		"waste in the void": {func(pb *pgallocpb.MemoryFileMetadataProto) { pb.UnwasteHuge[len(pb.UnwasteHuge)-1].End-- }, "which does not consist of pages"},
		"void that ends": {func(pb *pgallocpb.MemoryFileMetadataProto) {
			pb.UnwasteHuge[len(pb.UnwasteHuge)-1].End = 1 << 40
		}, "beyond the file's"},
		"pages that are released": {func(pb *pgallocpb.MemoryFileMetadataProto) { pb.Subreleased = map[uint64]uint64{0: math.MaxUint64} }, "pages are released"},
		"another version":         {func(pb *pgallocpb.MemoryFileMetadataProto) { pb.Version = 2 }, "version 2"},
	} {
		t.Run(name, func(t *testing.T) {
			var pb pgallocpb.MemoryFileMetadataProto
			if err := proto.Unmarshal(whole[8:8+length], &pb); err != nil {
				t.Fatal(err)
			}
			c.change(&pb)
			data, err := proto.Marshal(&pb)
			if err != nil {
				t.Fatal(err)
			}
			b := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
			err = load(t, bytes.NewReader(append(append(b, data...), whole[8+length:]...)))
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("it is %v, not %q", err, c.says)
			}
		})
	}
}

func TestLengthOfMetadataIsBounded(t *testing.T) {
	for _, n := range []uint64{1000, 1 << 40, math.MaxUint64} {
		b := binary.LittleEndian.AppendUint64(nil, n)
		if err := load(t, bytes.NewReader(b)); err == nil || !strings.Contains(err.Error(), "can be read") {
			t.Errorf("%d bytes of metadata are %v", n, err)
		}
		if err := load(t, io.MultiReader(bytes.NewReader(b))); err == nil {
			t.Errorf("%d bytes of metadata are read from nothing", n)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := readMetadata(io.MultiReader(bytes.NewReader(binary.LittleEndian.AppendUint64(nil, maxMetadata)))); err == nil {
		t.Error("metadata is read from nothing")
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > maxMetadata/16 {
		t.Errorf("metadata that is not there takes %d bytes", took)
	}
}
