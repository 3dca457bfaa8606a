package api

import (
	"context"
	"time"

	"github.com/coder/websocket"

	"github.com/bothy-dev/bothy"
)

const (
	// maxFrame bounds what a caller may send at once.
	maxFrame  = 1 << 20
	pingEvery = 30 * time.Second
)

// leave closes a WebSocket whose caller has left, or may not stay.
func (s *Chain) leave(ctx context.Context, conn *websocket.Conn) {
	if cause := endedBy(ctx); cause != nil {
		note(ctx, problemOf(cause))
		_ = conn.Close(websocket.StatusPolicyViolation, cause.Detail)
	} else if s.closing.Err() != nil {
		_ = conn.Close(websocket.StatusGoingAway, "the server is closing")
	}
	_ = conn.CloseNow()
}

func needsSocket(hint string) error {
	return bothy.Errorf(bothy.CodeInvalid, "this call needs a WebSocket").WithHint("%s", hint)
}

// pingUntilGone finds out about callers whose connection died in silence.
func pingUntilGone(ctx context.Context, conn *websocket.Conn, gone func()) {
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
