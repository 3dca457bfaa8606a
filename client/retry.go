package client

import (
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
	if r.Body != nil && r.Body != http.NoBody {
		if r.GetBody == nil {
			return false
		}
		body, err := r.GetBody()
		if err != nil {
			return false
		}
		r.Body = body
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
