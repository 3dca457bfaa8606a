package client

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bothy-dev/bothy"
)

// door answers like a server that is busy at first.
type door struct {
	calls, busy int
	code        bothy.Code
	after       string
	bodies      []string
}

func (d *door) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if r.Body != nil {
		b, _ := io.ReadAll(r.Body)
		d.bodies = append(d.bodies, string(b))
	}
	w := httptest.NewRecorder()
	if d.calls++; d.calls <= d.busy {
		w.Header().Set("Retry-After", d.after)
		w.WriteHeader(429)
		io.WriteString(w, `{"code":"`+string(d.code)+`","detail":"busy"}`)
	} else {
		io.WriteString(w, `{"exit_code":0}`)
	}
	res := w.Result()
	res.Request = r
	return res, nil
}

func TestRefusedCallsAreSentAgain(t *testing.T) {
	for name, c := range map[string]struct {
		door  door
		calls int
		want  bothy.Code
		took  time.Duration
	}{
		"busy twice":        {door{busy: 2, code: bothy.CodeRateLimited, after: "2"}, 3, "", 4 * time.Second},
		"busy for too long": {door{busy: 9, code: bothy.CodeRateLimited, after: "2"}, 4, bothy.CodeRateLimited, 6 * time.Second},
		"asks for an hour":  {door{busy: 9, code: bothy.CodeRateLimited, after: "3600"}, 1, bothy.CodeRateLimited, 0},
		"a quota":           {door{busy: 9, code: bothy.CodeQuota, after: "2"}, 1, bothy.CodeQuota, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				x := New("http://x", "key", WithHTTPClient(&http.Client{Transport: &c.door}))
				_, err := x.Exec.Exec(t.Context(), "sbx", bothy.ExecRequest{Command: bothy.Command{Line: "echo"}})
				if bothy.ErrorCode(err) != c.want || c.door.calls != c.calls || time.Since(began) != c.took {
					t.Errorf("%d calls in %v: %v", c.door.calls, time.Since(began), err)
				}
				for _, b := range c.door.bodies {
					if !strings.Contains(b, "echo") {
						t.Errorf("the body was %q", b)
					}
				}
			})
		})
	}
}

func TestBodyThatCannotBeRewoundIsSentOnce(t *testing.T) {
	d := &door{busy: 9, code: bothy.CodeRateLimited, after: "2"}
	x := New("http://x", "key", WithHTTPClient(&http.Client{Transport: d}))
	_, err := x.Files.Write(t.Context(), "sbx", "/x", io.MultiReader(strings.NewReader("once")), bothy.WriteOptions{})
	if bothy.ErrorCode(err) != bothy.CodeRateLimited || d.calls != 1 {
		t.Errorf("%d calls: %v", d.calls, err)
	}
}

func TestWaitingEndsWithTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &door{busy: 9, code: bothy.CodeRateLimited, after: "20"}
		x := New("http://x", "key", WithHTTPClient(&http.Client{Transport: d}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := x.Exec.Exec(ctx, "sbx", bothy.ExecRequest{}); err == nil {
			t.Error("it worked")
		}
		if time.Since(began) != time.Second {
			t.Errorf("it took %v", time.Since(began))
		}
	})
}

// shared answers each call after another request has taken the connection of the first so many.
type shared struct {
	door
	taken int
}

func (s *shared) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.calls < s.taken {
		s.calls++
		return nil, context.Canceled
	}
	return s.door.RoundTrip(r)
}

func TestConnectionThatAnotherRequestTook(t *testing.T) {
	run := func(x *Client) error {
		_, err := x.Exec.Exec(t.Context(), "sbx", bothy.ExecRequest{Command: bothy.Command{Line: "echo"}})
		return err
	}
	for name, c := range map[string]struct {
		taken, calls int
		do           func(*Client) error
		want         bothy.Code
	}{
		"an end":                        {1, 2, func(x *Client) error { return x.Sandboxes.Terminate(t.Context(), "sbx") }, ""},
		"a question":                    {2, 3, func(x *Client) error { _, err := x.Sandboxes.Get(t.Context(), "sbx"); return err }, ""},
		"always":                        {9, 4, func(x *Client) error { return x.Sandboxes.Terminate(t.Context(), "sbx") }, CodeUnreachable},
		"a command, which may have run": {1, 1, run, CodeUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			s := &shared{taken: c.taken}
			err := c.do(New("http://x", "key", WithHTTPClient(&http.Client{Transport: s})))
			if bothy.ErrorCode(err) != c.want || s.calls != c.calls {
				t.Errorf("%d calls: %v", s.calls, err)
			}
		})
	}
}
