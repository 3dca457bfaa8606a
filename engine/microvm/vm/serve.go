package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// supervisor answers the host.
type supervisor struct {
	ctl, news *os.File
	// ended is called with the reason when the machine has nothing left to do.
	ended func(error)

	box *box // once started
}

// errGivenUp is the error of a request that was superseded by another one.
var errGivenUp = errors.New("the host gave the request up")

// serve answers requests, one at a time: the next one ends the one before.
func (s *supervisor) serve() error {
	var write sync.Mutex
	var before chan struct{}
	var stop *atomic.Bool
	for {
		number, q, err := nextRequest(s.ctl)
		if err != nil {
			return fmt.Errorf("read from the host: %w", err)
		}
		if before != nil {
			stop.Store(true)
			<-before
		}
		done, given := make(chan struct{}), new(atomic.Bool)
		before, stop = done, given
		go func() {
			defer close(done)
			w := &replyWriter{w: s.ctl, number: number, given: given, mu: &write}
			r := s.answer(q, w)
			if b, err := json.Marshal(r); err == nil {
				_ = w.send(KindReply, b)
			}
		}()
	}
}

// replyWriter sends what is written to it as data of a reply.
type replyWriter struct {
	w      io.Writer
	number uint64
	given  *atomic.Bool
	mu     *sync.Mutex
}

func (w *replyWriter) Write(p []byte) (int, error) {
	sent := 0
	for len(p) > 0 {
		n := min(len(p), MaxFrame)
		if err := w.send(KindData, p[:n]); err != nil {
			return sent, err
		}
		sent, p = sent+n, p[n:]
	}
	return sent, nil
}

func (w *replyWriter) send(k Kind, p []byte) error {
	if w.given.Load() {
		return errGivenUp
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.w.Write(frame(w.number, k, p))
	return err
}

// badImage marks an error that is the fault of an image.
type badImage struct{ error }

func (s *supervisor) answer(q Request, data io.Writer) (r Reply) {
	var err error
	if q.UnixNano != 0 {
		err = setClock(q.UnixNano)
	}
	if err == nil && len(q.Entropy) > 0 {
		err = addEntropy(q.Entropy)
	}
	if err == nil {
		r.Stats, err = s.do(q, data)
	}
	if s.box != nil {
		r.Blocks = s.box.spare.used
	}
	if err != nil {
		r.Error = err.Error()
		var bad badImage
		r.BadImage = errors.As(err, &bad)
	}
	return r
}

func (s *supervisor) do(q Request, data io.Writer) (*Stats, error) {
	if q.Op == OpStart {
		if s.box != nil || q.Start == nil {
			return nil, errors.New("the sandbox has been started")
		}
		b, err := startBox(*q.Start, s.news)
		if err != nil {
			return nil, err
		}
		s.box = b
		go func() { s.ended(b.wait()) }()
		return nil, nil
	}
	b := s.box
	if b == nil {
		return nil, errors.New("the sandbox has not been started")
	}
	if q.Limits != nil {
		if err := b.setLimits(*q.Limits); err != nil {
			return nil, err
		}
	}
	switch q.Op {
	case OpStats:
		return b.stats()
	case OpLimits:
		return nil, nil
	case OpFreeze:
		return nil, b.freeze()
	case OpThaw:
		return nil, b.thaw()
	case OpWake:
		return nil, b.wake()
	case OpFiles:
		return nil, writeTar(data, upperDir)
	}
	return nil, fmt.Errorf("there is no operation %q", q.Op)
}

func setClock(unixNano int64) error {
	ts := unix.NsecToTimespec(unixNano)
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		return fmt.Errorf("set the clock: %w", err)
	}
	return nil
}

// addEntropy mixes the host's randomness into the kernel's pool, and makes the
// kernel reseed.
func addEntropy(p []byte) error {
	f, err := os.OpenFile("/dev/urandom", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(p); err != nil {
		return err
	}
	const reseed = 0x5207 // RNDRESEEDCRNG
	if err := unix.IoctlSetInt(int(f.Fd()), reseed, 0); err != nil && err != unix.ENODATA {
		return fmt.Errorf("reseed: %w", err)
	}
	return nil
}

// sendNews writes a line to the host, which may not be listening.
func sendNews(w io.Writer, n News) {
	b, err := json.Marshal(n)
	if err == nil {
		_, _ = w.Write(append(b, '\n'))
	}
}

// shortly is the interval for polling something that is about to happen.
const shortly = time.Millisecond
