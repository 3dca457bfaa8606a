package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob/s3/s3test"
)

// A bucket that is emptied while a server uses it is not used until its content is back.
func TestABucketThatLosesItsMark(t *testing.T) {
	server := s3test.Start(t)
	url := server.Bucket(t, "one")
	b := openBucket(t, url)
	c := claimOf(url, "me")
	if err := b.Claim(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := b.Check(t.Context()); err != nil || !b.Answers() {
		t.Errorf("before: %v", err)
	}
	mend := server.InjectFaults(s3test.Faults{Disconnect: func(*http.Request) bool { return true }})
	if err := b.Check(t.Context()); !errors.Is(err, ErrUnavailable) || b.Usable() != nil || b.Answers() {
		t.Errorf("while the storage is unavailable: %v, usable: %v, answers: %v", err, b.Usable(), b.Answers())
	}
	mend()
	mark := server.Get(t, "one", markerName)
	for what, damage := range map[string]func(){
		"emptied": func() {
			if err := server.Remove("one", markerName); err != nil {
				t.Fatal(err)
			}
		},
		"another's": func() {
			server.Put(t, "one", markerName, `{"format":1,"owner":"x","place":"y","created_at":"2026-01-02T03:04:05Z"}`)
		},
	} {
		damage()
		if err := b.Check(t.Context()); bothy.ErrorCode(err) != bothy.CodeConflict || b.Usable() == nil || !b.Answers() {
			t.Errorf("%s: %v, usable: %v", what, err, b.Usable())
		}
		if err := b.Claim(t.Context(), c); bothy.ErrorCode(err) != bothy.CodeConflict {
			t.Errorf("%s, claimed again: %v", what, err)
		}
		server.Put(t, "one", markerName, mark)
		if err := b.Claim(t.Context(), c); err != nil || b.Usable() != nil {
			t.Errorf("%s, then restored: %v", what, err)
		}
	}
}

func TestReadings(t *testing.T) {
	h := newHost(t, nil)
	mend := h.server.InjectFaults(s3test.Faults{Disconnect: func(r *http.Request) bool { return r.Method == http.MethodPut }})
	h.add("one", files())
	h.Keep("one")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var r Reading
	for r = h.Reading(); r.UploadFailures < 2 && ctx.Err() == nil; r = h.Reading() {
		time.Sleep(time.Millisecond)
	}
	if r.Pending != 1 || r.Oldest <= 0 || r.UploadFailures < 2 || r.Uploads != 0 {
		t.Errorf("while the storage is unavailable: %+v", r)
	}
	mend()
	h.keep("one")
	h.forget()
	h.wantFiles("one", files())
	if r = h.Reading(); r.Pending != 0 || r.Oldest != 0 || r.Uploads != 1 || r.UploadBytes == 0 || r.Fetches != 1 || r.FetchBytes != r.UploadBytes || r.FetchFailures != 0 {
		t.Errorf("after an upload and a fetch: %+v", r)
	}
	h.forget()
	mend = h.server.InjectFaults(s3test.Faults{Disconnect: func(*http.Request) bool { return true }})
	defer mend()
	if _, _, err := h.Open(t.Context(), "one"); err == nil {
		t.Error("a tree was fetched from unavailable storage")
	}
	if r = h.Reading(); r.FetchFailures != 1 {
		t.Errorf("after a fetch that failed: %+v", r)
	}
}

// A request that is given up, as when another piece of the same tree is damaged, does not make the
// storage one that does not answer.
func TestRequestsThatAreGivenUp(t *testing.T) {
	b := &Bucket{}
	gone := fmt.Errorf("%w: the connection was closed", ErrUnavailable)
	ctx, cancel := context.WithCancel(t.Context())
	if b.note(ctx, &gone); b.Answers() {
		t.Error("the storage that does not answer does")
	}
	answered := error(nil)
	b.note(ctx, &answered)
	cancel()
	if b.note(ctx, &gone); !b.Answers() {
		t.Error("the storage does not answer")
	}
}
