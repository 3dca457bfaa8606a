//go:build !linux || clientonly

package cli

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// TestTheClientSaysWhatNeedsAHost runs the commands that only a Linux host has, with their flags.
func TestTheClientSaysWhatNeedsAHost(t *testing.T) {
	for _, line := range []string{"up --install", "serve --listen :1", "doctor --fix", "host join token", "bench", "migrate --to x", "down", "template pull x --key y", "template export x y"} {
		root := newRoot(newApp(os.Stdin, io.Discard, io.Discard))
		root.SetArgs(strings.Fields(line))
		err := root.Execute()
		if bothy.ErrorCode(err) != bothy.CodeUnsupported || !strings.Contains(err.Error(), "needs a Linux host") {
			t.Errorf("bothy %s: %v", line, err)
		}
	}
}
