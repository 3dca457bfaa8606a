package client_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/client"
)

// pipes is a listener and its dialer without a network, so that both can live in a synctest
// bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p pipes) Close() error   { close(p.done); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

func (p pipes) dial(context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	p.conns <- there
	return here, nil
}

// slow calls f with a guest that takes this long to answer.
func slow(t *testing.T, takes time.Duration, f func(context.Context, *client.Client)) {
	synctest.Test(t, func(t *testing.T) {
		p := pipes{make(chan net.Conn), make(chan struct{})}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // the server notices a disconnect only after it has read the body
			select {
			case <-time.After(takes):
			case <-r.Context().Done():
			}
		})}
		go s.Serve(p)
		c := client.New(p.dial, "key")
		f(t.Context(), c)
		c.CloseIdle()
		s.Close()
	})
}

func TestTimeoutsAreLongForFoldersAndShortForFiles(t *testing.T) {
	slow(t, 5*time.Minute, func(ctx context.Context, c *client.Client) {
		if _, err := c.List(ctx, "/large", "", 1); err != nil {
			t.Errorf("a listing that takes five minutes: %v", err)
		}
		if err := c.Remove(ctx, "/large", ""); err != nil {
			t.Errorf("a removal that takes five minutes: %v", err)
		}
		began := time.Now()
		_, err := c.Stat(ctx, "/small", "")
		wantCode(t, err, bothy.CodeTimeout)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the request for one file timed out after %v", took)
		}
	})
	slow(t, time.Hour, func(ctx context.Context, c *client.Client) {
		_, err := c.List(ctx, "/endless", "", 1)
		wantCode(t, err, bothy.CodeTimeout)
	})
}
