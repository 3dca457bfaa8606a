package microvm

import (
	"bytes"
	"errors"
	"math"
	"strconv"

	"github.com/bothy-dev/bothy"
)

// An emulated machine's kernel measures its timer in the first second, by a loop that
// goes wrong when the host takes the processor away at the wrong moment. It then has
// timers that are much too slow, or none, and this cannot be corrected. The host
// knows the right value, and boots such a machine again.

// errTimer is the cause of the end of a start that is to be tried again.
var errTimer = errors.New("the machine's kernel has measured its timer wrongly")

const (
	timerWords  = "host bus clock speed is "
	timerDead   = "disabling apic timer"
	timerMHz    = 1000 // QEMU's
	timerWithin = 0.1
	// timerTries are how often a machine is booted at most. On a busy host one boot
	// in fifty goes wrong.
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

// bootable waits for the turn of an emulated machine to boot: as many at once as there
// are processors, since more only take them from each other.
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
