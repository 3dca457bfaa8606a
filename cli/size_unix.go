//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/bothy-dev/bothy"
)

// followSize passes every change of the window's size on, until stop is called.
func followSize(fd int, t bothy.Terminal) (stop func()) {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	go func() {
		for range changed {
			if cols, rows, err := term.GetSize(fd); err == nil {
				_ = t.Resize(cols, rows)
			}
		}
	}()
	return func() {
		signal.Stop(changed)
		close(changed)
	}
}
