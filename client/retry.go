package client

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/bothy-dev/bothy"
)

const (
	// maxRetries is how often a call is retried that the server was too busy for.
	maxRetries = 3
	// longestPause limits how long the server may make us wait before a retry.
	longestPause = 30 * time.Second
)

// again waits as long as the server asks, and prepares a refused request for a retry. It reports
// false if that is useless or impossible: the call was refused for another reason, its body can
// be read only once, or its caller has stopped waiting.
func again(r *http.Request, refused *bothy.Error) bool {
	if refused.Code != bothy.CodeRateLimited || refused.RetryAfter <= 0 || refused.RetryAfter > longestPause {
		return false
	}
	if !rewind(r) {
		return false
	}
	timer := time.NewTimer(refused.RetryAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// taken reports whether the end of another request took the connection of r, which may be repeated.
// net/http returns the connection of a response without content to the pool before its request counts
// as done. One that is cancelled in between closes the connection under the request that uses it next.
func taken(r *http.Request, err error) bool {
	if r.Context().Err() != nil || !errors.Is(err, context.Canceled) {
		return false
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete:
		return true
	}
	return r.Header.Get("Idempotency-Key") != ""
}

// rewind makes the body of r readable again.
func rewind(r *http.Request) bool {
	if r.Body == nil || r.Body == http.NoBody {
		return true
	}
	if r.GetBody == nil {
		return false
	}
	body, err := r.GetBody()
	if err != nil {
		return false
	}
	r.Body = body
	return true
}
