package kernel

import "time"

// CalibrateIn has the clocks look at the host's for the next time in d. It reports whether
// there are clocks.
func (t *Timekeeper) CalibrateIn(d time.Duration) bool {
	if t.timer == nil {
		return false
	}
	t.timer.Reset(d)
	return true
}
