package template

import (
	"context"
	"fmt"
	"os/exec"
	"time"
)

// stamp is the time of every file in every image, 2025-01-01 UTC, so that the same files make
// the same image. It is not zero because zip does not support times before 1980.
const stamp = 1735689600

// mkfs makes an EROFS image from a folder. It is not compressed, so that sandboxes share its
// pages and read them at the speed of memory. noinline_data is required: without it gVisor
// cannot map the tails of programs. Extended attributes are omitted: gVisor cannot open files
// that have any.
func mkfs(ctx context.Context, image, dir string) error {
	cmd := exec.CommandContext(ctx, "mkfs.erofs", "--quiet", "-E", "noinline_data", "-x-1",
		fmt.Sprintf("-T%d", stamp), "-U", "00000000-0000-0000-0000-000000000000", image, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.erofs: %w: %s", err, lastLines(string(out), 5))
	}
	return nil
}

var stampTime = time.Unix(stamp, 0)
