package middleware

import (
	"context"
	"time"

	"github.com/coder/websocket"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/problem"
)

const (
	// MaxFrame limits the size of a caller's message.
	MaxFrame  = 1 << 20
	pingEvery = 30 * time.Second
)

// Leave closes a WebSocket whose caller has left, or may not stay.
func (s *Chain) Leave(ctx context.Context, conn *websocket.Conn) {
	if cause := EndedBy(ctx); cause != nil {
		Note(ctx, problem.Of(cause))
		_ = conn.Close(websocket.StatusPolicyViolation, cause.Detail)
	} else if s.closing.Err() != nil {
		_ = conn.Close(websocket.StatusGoingAway, "the server is closing")
	}
	_ = conn.CloseNow()
}

func NeedsSocket(hint string) error {
	return bothy.Errorf(bothy.CodeInvalid, "this call needs a WebSocket").WithHint("%s", hint)
}

// PingUntilGone detects callers whose connection died silently.
func PingUntilGone(ctx context.Context, conn *websocket.Conn, gone func()) {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		wait, cancel := context.WithTimeout(context.Background(), pingEvery)
		err := conn.Ping(wait)
		cancel()
		if err != nil {
			gone()
			return
		}
	}
}
