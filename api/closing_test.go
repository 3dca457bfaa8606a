package api

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"
)

// TestStreamsEndWithAReason reads streams to their end when the server shuts down.
func TestStreamsEndWithAReason(t *testing.T) {
	f := start(t, func(s *setup) { s.config.Grace = 50 * time.Millisecond })
	b := f.create()
	f.ok(200, f.do("PUT", b+"/files?path=watched", "x"))
	ctx, leave := context.WithTimeout(t.Context(), time.Minute)
	defer leave()
	ends := map[string]chan string{}
	follow := func(path, code string, open func() io.ReadCloser) {
		ends[path+" "+code] = make(chan string, 1)
		body := open()
		go func() {
			defer body.Close()
			text, err := io.ReadAll(body)
			if err != nil {
				text = append(text, err.Error()...)
			}
			ends[path+" "+code] <- string(text)
		}()
	}
	for _, path := range []string{"/v1/events", b + "/files/watch?path=watched", b + "/network/log"} {
		follow(path, "shutting_down", func() io.ReadCloser {
			return f.open(ctx, "GET", path, nil, header{"Accept": "text/event-stream"}).Body
		})
	}
	follow(b+"/exec", "", func() io.ReadCloser {
		return f.open(ctx, "POST", b+"/exec", strings.NewReader(`{"command":"wait"}`), header{"Accept": "text/event-stream"}).Body
	})
	f.Drain()
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	for what, end := range ends {
		path, code, _ := strings.Cut(what, " ")
		text := <-end
		last := text[strings.LastIndex(strings.TrimRight(text, "\n"), "\n\n")+1:]
		if !strings.Contains(last, "event: error\n") || !strings.Contains(last, code) {
			t.Errorf("%s ends with %q", path, last)
		}
	}
}
