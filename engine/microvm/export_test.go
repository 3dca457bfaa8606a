package microvm

import "time"

// SetAskTime has machines be waited for so long, until the function that it returns is
// called.
func SetAskTime(d time.Duration) (undo func()) {
	before := shortened.Swap(int64(d))
	return func() { shortened.Store(before) }
}
