package kernel

import "time"

// CalibrateIn schedules the next calibration of the clocks in d. It reports whether there
// are clocks.
func (t *Timekeeper) CalibrateIn(d time.Duration) bool {
	if t.timer == nil {
		return false
	}
	t.timer.Reset(d)
	return true
}
