package template

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// registrySilence is how long a request to a registry may make no progress.
const registrySilence = 2 * time.Minute

var errSilent = errors.New("it has not responded for two minutes")

// attentive cancels requests that make no progress: a caller that waits for a registry blocks
// others.
type attentive struct{ http.RoundTripper }

func (t attentive) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	m := &moving{timer: time.AfterFunc(registrySilence, func() { cancel(errSilent) }), ctx: ctx, cancel: cancel}
	r = r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &movingBody{r.Body, m, false}
	}
	res, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		m.end()
		return nil, m.why(err)
	}
	m.moved()
	res.Body = &movingBody{res.Body, m, true}
	return res, nil
}

// moving is a request that is cancelled unless it makes progress.
type moving struct {
	timer  *time.Timer
	ctx    context.Context
	cancel context.CancelCauseFunc
}

func (m *moving) moved() { m.timer.Reset(registrySilence) }

func (m *moving) end() {
	m.timer.Stop()
	m.cancel(nil)
}

// why returns the error of a request, which is errSilent if that cancelled it.
func (m *moving) why(err error) error {
	if errors.Is(context.Cause(m.ctx), errSilent) {
		return errSilent
	}
	return err
}

type movingBody struct {
	io.ReadCloser
	m *moving
	// last marks the response's body, after which the request is over.
	last bool
}

func (b *movingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.m.moved()
	}
	if err != nil && err != io.EOF {
		err = b.m.why(err)
	}
	return n, err
}

func (b *movingBody) Close() error {
	err := b.ReadCloser.Close()
	if b.last {
		b.m.end()
	}
	return err
}
