package lifecycle_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy/lifecycle/warm"
)

// text is a log.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *text) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *text) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

// A template that fails to start is tried less and less often, and finally only when a request needs
// it. The log reports this twice.
func TestPoolGivesUpABrokenTemplate(t *testing.T) {
	var tries atomic.Int64
	var works atomic.Bool
	log := &text{}
	w := newPoolWorld(t, warm.Options{Ready: 1, ReadyMax: 1, Templates: []string{"a"}}, func(w *world) {
		w.log = slog.New(slog.NewTextHandler(log, nil))
		w.host.FailStart = func(string) error {
			tries.Add(1)
			if works.Load() {
				return nil
			}
			return errors.New("the image is broken")
		}
	})
	eventually(t, "it is tried", func() bool { return tries.Load() == 1 })
	passes := func() bool {
		w.clock.pass(time.Minute)
		time.Sleep(2 * time.Millisecond) // lets the pool run
		return tries.Load() >= 6
	}
	eventually(t, "it is tried more and more seldom", passes)
	for range 300 {
		passes()
	}
	if n := tries.Load(); n != 6 {
		t.Errorf("it was tried %d times", n)
	}
	if n := log.count("cannot prepare"); n != 2 {
		t.Errorf("the log reports it %d times:\n%s", n, log.b.String())
	}
	works.Store(true)
	w.create(ofItsOwn("a"))
	w.hasReady(1)
}
