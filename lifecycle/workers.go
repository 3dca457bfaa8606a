package lifecycle

import "sync"

// workers are goroutines that Close waits for. None begins once it does.
type workers struct {
	mu     sync.Mutex
	closed bool
	all    sync.WaitGroup
}

// begin counts the caller as a worker until done is called, unless Close waits already.
func (w *workers) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.all.Add(1)
	}
	return !w.closed
}

func (w *workers) done() { w.all.Done() }

// Go runs f in a worker, and reports whether it does.
func (w *workers) Go(f func()) bool {
	if !w.begin() {
		return false
	}
	go func() {
		defer w.done()
		f()
	}()
	return true
}

// must is Go for what must be done in any case: without a worker the caller does it.
func (w *workers) must(f func()) {
	if !w.Go(f) {
		f()
	}
}

// close waits for the workers.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.all.Wait()
}
