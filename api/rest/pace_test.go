package rest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bothy-dev/bothy"
)

// trickle returns a few bytes at an interval, and honours a deadline.
type trickle struct {
	every    time.Duration
	bytes    int
	deadline time.Time
}

func (s *trickle) set(at time.Time) error {
	s.deadline = at
	return nil
}

func (s *trickle) Read(b []byte) (int, error) {
	if wait := time.Until(s.deadline); wait < s.every {
		time.Sleep(wait)
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(s.every)
	return min(s.bytes, len(b)), nil
}

// A sender that trickles is cut off after a while, but not one that is slow and steady.
func TestPace(t *testing.T) {
	for name, c := range map[string]struct {
		sender trickle
		ends   time.Duration // at the latest; 0 is never
	}{
		"one byte every 20 seconds": {trickle{every: 20 * time.Second, bytes: 1}, 80 * time.Second},
		"silent":                    {trickle{every: time.Hour, bytes: 1 << 20}, paceSilence},
		"15 KiB a second":           {trickle{every: time.Second, bytes: 15 << 10}, 61 * time.Second},
		"17 KiB a second":           {trickle{every: time.Second, bytes: 17 << 10}, 0},
		"in bursts":                 {trickle{every: 29 * time.Second, bytes: 1 << 20}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var p pace
			begun := time.Now()
			buf := make([]byte, 1<<20)
			for time.Since(begun) < 2*time.Hour {
				_, err := p.wait(c.sender.set, func() (int, error) { return c.sender.Read(buf) })
				if !c.sender.deadline.IsZero() {
					t.Fatalf("%s: a deadline is left", name)
				}
				if err == nil {
					continue
				}
				if took := time.Since(begun); bothy.ErrorCode(err) != bothy.CodeTimeout || c.ends == 0 || took > c.ends {
					t.Errorf("%s: after %v: %v", name, took, err)
				}
				return
			}
			if c.ends != 0 {
				t.Errorf("%s: it was never cut off", name)
			}
		})
	}
}

// An export whose client stops reading ends, and so does its writer.
func TestPacedWriterGivesUp(t *testing.T) {
	gone := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &pacedWriter{ResponseWriter: w, c: http.NewResponseController(w)}
		p.silence = 50 * time.Millisecond
		_, err := io.Copy(p, neverEnding{})
		gone <- err
	}))
	defer srv.Close()
	c, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := <-gone; bothy.ErrorCode(err) != bothy.CodeTimeout || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

type neverEnding struct{}

func (neverEnding) Read(b []byte) (int, error) {
	return copy(b, bytes.Repeat([]byte{'x'}, len(b))), nil
}
