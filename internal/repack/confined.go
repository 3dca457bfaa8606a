package repack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/bothy-dev/bothy/internal/confined"
)

// Task is Here in a process of its own.
var Task = confined.Task{
	Name: "repack an archive", Memory: 2 << 30, Seconds: 120, Output: maxUnpacked + maxFiles*8<<10,
	Run: func(ctx context.Context, args []string, in *os.File, out io.Writer) error {
		if len(args) != 1 {
			return errors.New("give the folder to unpack to")
		}
		if err := Here(ctx, in, args[0], out); err != nil {
			return fmt.Errorf("the archive is refused: %w", err)
		}
		return nil
	},
}

// Confined is Here in a process that has the archive, and the pipe for the tar. The program must
// serve Task.
func Confined(ctx context.Context, file *os.File, folder string, w io.Writer) error {
	return Task.Do(ctx, file, w, folder)
}
