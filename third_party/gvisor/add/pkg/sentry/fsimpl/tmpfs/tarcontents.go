package tmpfs

import (
	"archive/tar"
	"fmt"
	"io"

	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/usermem"
)

// tarChunk is how much of a file is in memory while it is written to a tar.
const tarChunk = 1 << 20

// writeContents writes a file to a tar in chunks: a file, in particular one with holes,
// may be larger than the available memory. The caller holds rf.inode.mu.
func writeContents(ctx context.Context, rf *regularFile, tw *tar.Writer) error {
	size := rf.size.RacyLoad()
	buf := make([]byte, min(size, tarChunk))
	for at := uint64(0); at < size; {
		chunk := buf[:min(size-at, tarChunk)]
		rw := getRegularFileReadWriter(rf, int64(at), 0)
		n, err := usermem.BytesIOSequence(chunk).CopyOutFrom(ctx, rw)
		putRegularFileReadWriter(rw)
		if err != nil && err != io.EOF {
			return fmt.Errorf("failed to read file content: %w", err)
		}
		if n != int64(len(chunk)) {
			return fmt.Errorf("failed to read all file content, got %d bytes of %d at %d", n, len(chunk), at)
		}
		if _, err := tw.Write(chunk); err != nil {
			return fmt.Errorf("failed to write file content to tar: %w", err)
		}
		at += uint64(n)
	}
	return nil
}
