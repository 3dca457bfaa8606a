package bounded

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Limits of paths. The first two are Linux's.
const (
	MaxName  = 255
	MaxPath  = 4095
	MaxDepth = 256
	// MaxRecords limits the bytes of an entry's extended records, such as its attributes.
	MaxRecords = 128 << 10
)

// CheckPath returns an Error for a path that has a long name, is long, or is deep.
func CheckPath(path string) error {
	if len(path) > MaxPath {
		return &Error{MaxPath, "bytes in a path"}
	}
	depth := 0
	for name := range strings.SplitSeq(path, "/") {
		if len(name) > MaxName {
			return &Error{MaxName, "bytes in a name"}
		}
		if name != "" && name != "." {
			depth++
		}
	}
	if depth > MaxDepth {
		return &Error{MaxDepth, "levels of folders"}
	}
	return nil
}

// Tar calls f for the entries of a tar, of which there may be at most n. Their paths pass
// CheckPath. If r is an io.Seeker, content that f does not read is skipped.
func Tar(ctx context.Context, r io.Reader, n int64, f func(*tar.Header, io.Reader) error) error {
	t := tar.NewReader(alive{ctx, r})
	for entries := int64(1); ; entries++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entries > n {
			return &Error{n, "files"}
		}
		if err := CheckHeader(h); err != nil {
			return fmt.Errorf("%s: %w", Short(h.Name), err)
		}
		if err := f(h, t); err != nil {
			return fmt.Errorf("%s: %w", Short(h.Name), err)
		}
	}
}

// CheckHeader returns an error for an entry with long paths or records.
func CheckHeader(h *tar.Header) error {
	records := 0
	for k, v := range h.PAXRecords {
		records += len(k) + len(v)
	}
	if records > MaxRecords {
		return &Error{MaxRecords, "bytes of extended records"}
	}
	if h.Typeflag == tar.TypeSymlink { // it need not lead anywhere
		if len(h.Linkname) > MaxPath {
			return &Error{MaxPath, "bytes in the target of a link"}
		}
		return CheckPath(h.Name)
	}
	return errors.Join(CheckPath(h.Name), CheckPath(h.Linkname))
}

// Short returns a name for an error or a log, of which it keeps the beginning.
func Short(name string) string {
	const most = 100
	if len(name) > most {
		return strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}
