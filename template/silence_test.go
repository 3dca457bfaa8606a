package template

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a registry that answers after a delay, one letter at a time.
type slow struct {
	first, every time.Duration
	letters      int
}

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
	}
	if err := pause(r.Context(), s.first); err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: 200, Body: &letters{ctx: r.Context(), slow: s}}, nil
}

type letters struct {
	ctx context.Context
	slow
}

func (l *letters) Read(p []byte) (int, error) {
	if l.letters == 0 {
		return 0, io.EOF
	}
	if err := pause(l.ctx, l.every); err != nil {
		return 0, err
	}
	l.letters--
	p[0] = 'x'
	return 1, nil
}

func (l *letters) Close() error { return nil }

// drip is a request body that is as slow.
type drip struct{ left int }

func (d *drip) Read(p []byte) (int, error) {
	if d.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(time.Minute)
	d.left--
	p[0] = 'y'
	return 1, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestSilentRegistriesTimeOut(t *testing.T) {
	for name, c := range map[string]struct {
		slow
		body   io.Reader
		silent bool
	}{
		"quick":                   {slow: slow{letters: 3}},
		"slow but steady":         {slow: slow{time.Minute, time.Minute, 30}, body: strings.NewReader("all")},
		"slow to upload to":       {slow: slow{letters: 1}, body: &drip{30}},
		"never answers":           {slow: slow{first: 24 * time.Hour}, silent: true},
		"stops in the middle":     {slow: slow{every: 24 * time.Hour, letters: 2}, silent: true},
		"never answers an upload": {slow: slow{first: 24 * time.Hour}, body: &drip{3}, silent: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://registry.example.com/v2/", c.body)
			must(t, err)
			begun := time.Now()
			res, err := attentive{c.slow}.RoundTrip(r)
			var said []byte
			if err == nil {
				said, err = io.ReadAll(res.Body)
				res.Body.Close()
			}
			if errors.Is(err, errSilent) != c.silent || !c.silent && (err != nil || len(said) != c.letters) {
				t.Errorf("%s: %q after %v: %v", name, said, time.Since(begun), err)
			}
		})
	}
}
