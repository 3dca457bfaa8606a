package pgalloc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"gvisor.dev/gvisor/pkg/hostarch"
	pgallocpb "gvisor.dev/gvisor/pkg/sentry/pgalloc/pgalloc_metadata_go_proto"
	"gvisor.dev/gvisor/pkg/sentry/usage"
	"gvisor.dev/gvisor/pkg/state"
)

// maxMetadata limits the metadata of a memory file if the size of the source is unknown.
const maxMetadata = 64 << 20

// readMetadata reads a length and that many bytes. Memory is allocated as they are read.
func readMetadata(r io.Reader) ([]byte, error) {
	bound := state.SizeOf(r)
	if bound == 0 {
		bound = maxMetadata
	}
	var lengthBuf [8]byte
	if _, err := io.ReadFull(r, lengthBuf[:]); err != nil {
		return nil, fmt.Errorf("failed to read metadata length: %w", err)
	}
	length := binary.LittleEndian.Uint64(lengthBuf[:])
	if length > uint64(bound) {
		return nil, fmt.Errorf("metadata of %d bytes where %d can be read", length, bound)
	}
	var data bytes.Buffer
	if _, err := io.CopyN(&data, r, int64(length)); err != nil {
		return nil, fmt.Errorf("failed to read metadata: %w", err)
	}
	return data.Bytes(), nil
}

// fileRange is what all ranges of the metadata have in common.
type fileRange interface {
	GetStart() uint64
	GetEnd() uint64
}

// checkMetadata checks the invariants of metadata: ranges are ordered, disjoint and
// page-aligned; accounted memory is inside the file; and no memory beyond the file can be
// allocated.
func checkMetadata(pb *pgallocpb.MemoryFileMetadataProto) error {
	if len(pb.Chunks) > maxChunks {
		return fmt.Errorf("%d chunks, at most %d are possible", len(pb.Chunks), uint64(maxChunks))
	}
	size := uint64(len(pb.Chunks)) * chunkSize
	if err := checkRanges("memAcct", pb.MemAcct, size); err != nil {
		return err
	}
	for _, s := range pb.MemAcct {
		if s.Kind > uint32(usage.Mapped) {
			return fmt.Errorf("memory of the unknown kind %d", s.Kind)
		}
	}
	for name, ranges := range map[string][]*pgallocpb.UnfreeRangeProto{"unfreeSmall": pb.UnfreeSmall, "unfreeHuge": pb.UnfreeHuge} {
		if err := checkVoid(name, ranges, size); err != nil {
			return err
		}
	}
	for name, ranges := range map[string][]*pgallocpb.FileRangeProto{"unwasteSmall": pb.UnwasteSmall, "unwasteHuge": pb.UnwasteHuge} {
		if err := checkVoid(name, ranges, size); err != nil {
			return err
		}
	}
	for start, pages := range pb.Subreleased {
		if start >= size || !hostarch.IsHugePageAligned(start) || pages > hostarch.HugePageSize/hostarch.PageSize {
			return fmt.Errorf("%d pages are released of the huge page at %#x, in a file of %#x bytes", pages, start, size)
		}
	}
	return nil
}

// checkRanges checks that ranges are of whole pages below end.
func checkRanges[R fileRange](name string, ranges []R, end uint64) error {
	last := uint64(0)
	for i, r := range ranges {
		from, to := r.GetStart(), r.GetEnd()
		if from >= to || i > 0 && from < last || to > end {
			return fmt.Errorf("%s has the range [%#x, %#x) after %#x, of %#x bytes", name, from, to, last, end)
		}
		if !aligned(from) || !aligned(to) && to != math.MaxUint64 {
			return fmt.Errorf("%s has the range [%#x, %#x), which does not consist of pages", name, from, to)
		}
		last = to
	}
	return nil
}

// checkVoid checks that one of the ranges covers everything beyond a file of size bytes.
func checkVoid[R fileRange](name string, ranges []R, size uint64) error {
	if err := checkRanges(name, ranges, math.MaxUint64); err != nil {
		return err
	}
	if n := len(ranges); n == 0 || ranges[n-1].GetStart() > size || ranges[n-1].GetEnd() != math.MaxUint64 {
		return fmt.Errorf("%s does not have what is beyond the file's %#x bytes", name, size)
	}
	return nil
}

func aligned(offset uint64) bool { return offset%hostarch.PageSize == 0 }
