package agent

import (
	"net/http"
	"runtime/debug"
	"sync"
	"time"
)

// idleTime is how long no request arrives before memory is given back.
const idleTime = 5 * time.Second

// idle gives memory back to the sandbox while there is nothing to do. The garbage collector
// alone would take minutes to notice.
type idle struct {
	mu     sync.Mutex
	active int
	timer  *time.Timer
	// release is debug.FreeOSMemory, except in tests.
	release func()
}

// watch counts the calls in progress.
func (i *idle) watch(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.enter()
		defer i.leave()
		next.ServeHTTP(w, r)
	})
}

func (i *idle) enter() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.active++
	if i.timer != nil {
		i.timer.Stop()
	}
}

func (i *idle) leave() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.active--
	switch {
	case i.active > 0:
	case i.timer == nil:
		i.timer = time.AfterFunc(idleTime, i.rest)
	default:
		i.timer.Reset(idleTime)
	}
}

func (i *idle) rest() {
	i.mu.Lock()
	quiet := i.active == 0
	release := i.release
	i.mu.Unlock()
	if !quiet {
		return
	}
	if release == nil {
		release = debug.FreeOSMemory
	}
	release()
}

func (i *idle) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.timer != nil {
		i.timer.Stop()
	}
}
