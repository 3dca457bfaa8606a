package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/bothy-dev/bothy/client"
)

const (
	// poolPatience is how long the pool may take to make one more.
	poolPatience = 30 * time.Second
	// poolRest is how long to wait after that for what it makes next.
	poolRest = 300 * time.Millisecond
)

// AwaitPool returns when a sandbox is ready in the server's pool.
func (t Target) AwaitPool(ctx context.Context) error { return t.awaitPool(ctx, 1) }

// awaitPool returns when so many sandboxes are ready in the server's pool.
func (t Target) awaitPool(ctx context.Context, least float64) error {
	ctx, cancel := context.WithTimeout(ctx, poolPatience)
	defer cancel()
	for {
		n, err := gauge(ctx, t.Client, "bothy_pool_ready")
		if err != nil {
			return fmt.Errorf("find out what the pool holds: %w", err)
		}
		if n >= least {
			Sleep(ctx, poolRest)
			return nil
		}
		if Sleep(ctx, 20*time.Millisecond); ctx.Err() != nil {
			return errors.New("the server's pool holds nothing of the template; name it under pool.templates")
		}
	}
}

// gauge reads one of a server's metrics.
func gauge(ctx context.Context, c *client.Client, name string) (value float64, err error) {
	text, err := c.Metrics.ServerMetrics(ctx)
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if v, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			_, err := fmt.Sscan(v, &value)
			return value, err
		}
	}
	return 0, fmt.Errorf("the server has no metric %s", name)
}

// Sleep waits, unless ctx ends before.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
