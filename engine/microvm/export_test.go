package microvm

import "time"

// SetAskTime sets how long to wait for machines until the returned function is called.
func SetAskTime(d time.Duration) (undo func()) {
	before := shortened.Swap(int64(d))
	return func() { shortened.Store(before) }
}
