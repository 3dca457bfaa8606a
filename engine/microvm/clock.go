package microvm

import (
	"bytes"
	"errors"
	"math"
	"strconv"

	"github.com/bothy-dev/bothy"
)

// An emulated machine's kernel calibrates its timer in the first second, by a loop that goes
// wrong if the host takes the processor away at the wrong moment. Its timers are then much too
// slow, or missing, and this cannot be corrected afterwards. The host knows the right value, and
// boots such a machine again.

// errTimer ends a start that is to be tried again.
var errTimer = errors.New("the machine's kernel calibrated its timer wrongly")

const (
	timerWords  = "host bus clock speed is "
	timerDead   = "disabling apic timer"
	timerMHz    = 1000 // QEMU's
	timerWithin = 0.1
	// timerTries is how often a machine is booted at most. On a busy host one boot in fifty goes
	// wrong.
	timerTries = 6
)

// badTimer reports whether a kernel's messages show a wrong timer.
func badTimer(said []byte) bool {
	if bytes.Contains(said, []byte(timerDead)) {
		return true
	}
	_, rest, found := bytes.Cut(said, []byte(timerWords))
	number, _, whole := bytes.Cut(rest, []byte(" "))
	if !found || !whole {
		return false
	}
	mhz, err := strconv.ParseFloat(string(number), 64)
	return err == nil && math.Abs(mhz-timerMHz) > timerWithin*timerMHz
}

// bootable waits for an emulated machine's turn to boot. Only as many boot at once as there are
// processors; more would only slow each other down.
func (e *Engine) bootable(done <-chan struct{}) (release func(), ok bool) {
	if e.o.Acceleration != bothy.AccelerationEmulated {
		return func() {}, true
	}
	select {
	case e.boots <- struct{}{}:
		return func() { <-e.boots }, true
	case <-done:
		return nil, false
	}
}
