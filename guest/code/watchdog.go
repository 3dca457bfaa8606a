package code

import (
	"sync"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// interruptTime is how long code has to end after an interrupt, before its
	// kernel is killed.
	interruptTime = 5 * time.Second
	// repeatTime is the interval at which an interrupt is repeated: one that comes at the wrong
	// moment is lost, for example when a shell is about to start a program.
	repeatTime = time.Second
)

// watchdog interrupts one piece of code, and kills its kernel if that does not help.
type watchdog struct {
	k    kernel
	over chan struct{} // closed when the code has ended

	once     sync.Once
	mu       sync.Mutex
	timedOut bool
	killed   bool
}

func newWatchdog(k kernel) *watchdog { return &watchdog{k: k, over: make(chan struct{})} }

// bite ends the code: by interrupts, and if they do not help, by killing the kernel.
func (w *watchdog) bite() {
	w.once.Do(func() {
		go func() {
			if w.interruptRepeatedly(interruptTime) {
				return
			}
			w.mu.Lock()
			w.killed = true
			w.mu.Unlock()
			w.k.kill()
		}()
	})
}

// interruptRepeatedly interrupts the code repeatedly, and reports whether it has ended.
func (w *watchdog) interruptRepeatedly(patience time.Duration) bool {
	late := time.NewTimer(patience)
	defer late.Stop()
	again := time.NewTicker(repeatTime)
	defer again.Stop()
	for {
		select {
		case <-w.over: // another piece of code may run by now
			return true
		default:
		}
		w.k.interrupt()
		select {
		case <-w.over:
			return true
		case <-late.C:
			return false
		case <-again.C:
		}
	}
}

func (w *watchdog) timeUp() {
	w.mu.Lock()
	w.timedOut = true
	w.mu.Unlock()
	w.bite()
}

// rest is called when the code is over.
func (w *watchdog) rest() { close(w.over) }

// note records in a result what the watchdog did.
func (w *watchdog) note(res *Result, timeout time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.timedOut {
		return
	}
	res.TimedOut = true
	res.Hint = "The code ran longer than its time-out of " + timeout.String() + " and was interrupted."
	if w.killed {
		res.Hint += " It did not stop, so its context was restarted and the variables are gone."
	}
	if res.Error == nil || w.killed {
		res.Error = &bothy.CodeError{Name: "TimeoutError", Value: "the code ran longer than " + timeout.String()}
	}
}
