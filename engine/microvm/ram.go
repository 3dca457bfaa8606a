package microvm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	pageSize = 4096
	// chunkPages is how many pages are processed together.
	chunkPages = 256
	// Bits of an entry of /proc/PID/pagemap.
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageOfFile  = 1 << 61
)

// writeRAM writes the memory of a paused machine to a file: the pages that the machine itself
// wrote, and the rest from the file below. A booted machine's file holds all its memory and is
// private.
func writeRAM(to *os.File, pid int, addr, size uint64, below *os.File, booted bool) error {
	if booted {
		return copyPages(to, below, int64(size))
	}
	if err := copySparse(to, below); err != nil {
		return err
	}
	pagemap, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		return err
	}
	defer pagemap.Close()
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return err
	}
	defer mem.Close()
	entries, pages := make([]byte, 8*chunkPages), make([]byte, pageSize*chunkPages)
	for at := uint64(0); at < size; at += pageSize * chunkPages {
		n := min((size-at)/pageSize, chunkPages)
		if _, err := pagemap.ReadAt(entries[:8*n], int64((addr+at)/pageSize*8)); err != nil {
			return fmt.Errorf("read which pages a machine has: %w", err)
		}
		for i := uint64(0); i < n; {
			if !isOwn(entries[8*i:]) {
				i++
				continue
			}
			first := i
			for i < n && isOwn(entries[8*i:]) {
				i++
			}
			run := pages[:(i-first)*pageSize]
			if _, err := mem.ReadAt(run, int64(addr+at+first*pageSize)); err != nil {
				return fmt.Errorf("read a machine's memory: %w", err)
			}
			if err := writePages(to, run, int64(at+first*pageSize), false); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyPages copies a file's data and skips empty pages.
func copyPages(to, from *os.File, size int64) error {
	if err := to.Truncate(size); err != nil {
		return err
	}
	buf := make([]byte, pageSize*chunkPages)
	return eachExtent(from, size, func(start, end int64) error {
		for at := start; at < end; at += int64(len(buf)) {
			part := buf[:min(int64(len(buf)), end-at)]
			if _, err := from.ReadAt(part, at); err != nil {
				return err
			}
			if err := writePages(to, part, at, true); err != nil {
				return err
			}
		}
		return nil
	})
}

// isOwn reports whether a page is the machine's own, rather than its file's.
func isOwn(entry []byte) bool {
	e := binary.NativeEndian.Uint64(entry)
	return e&pageSwapped != 0 || e&pagePresent != 0 && e&pageOfFile == 0
}

var zeroPage [pageSize]byte

// writePages writes whole pages, and leaves holes for empty ones if it may.
func writePages(to *os.File, p []byte, at int64, holes bool) error {
	for len(p) > 0 {
		n := 0
		for n < len(p) && !(holes && bytes.Equal(p[n:n+pageSize], zeroPage[:])) {
			n += pageSize
		}
		if _, err := to.WriteAt(p[:n], at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		for n < len(p) && holes && bytes.Equal(p[n:n+pageSize], zeroPage[:]) {
			n += pageSize
		}
		p, at = p[n:], at+int64(n)
	}
	return nil
}
