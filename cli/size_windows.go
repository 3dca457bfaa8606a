package cli

import (
	"time"

	"golang.org/x/term"

	"github.com/bothy-dev/bothy"
)

// sizeLook is how often the window's size is compared: Windows sends no signal when it changes.
const sizeLook = 250 * time.Millisecond

// followSize passes every change of the window's size on, until stop is called.
func followSize(fd int, t bothy.Terminal) (stop func()) {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(sizeLook)
		defer tick.Stop()
		lastCols, lastRows, _ := term.GetSize(fd)
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			cols, rows, err := term.GetSize(fd)
			if err == nil && (cols != lastCols || rows != lastRows) {
				lastCols, lastRows = cols, rows
				_ = t.Resize(cols, rows)
			}
		}
	}()
	return func() { close(done) }
}
