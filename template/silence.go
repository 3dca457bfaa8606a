package template

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// registrySilence is how long a registry may say nothing, and take nothing, while it is
// spoken to.
const registrySilence = 2 * time.Minute

var errSilent = errors.New("it has said nothing for two minutes")

// attentive gives up requests in which nothing moves any more: a caller that waits for a registry
// holds what others wait for.
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

// moving is a request that ends unless it is heard of.
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

// why is the error of a request, which is the silence if that has ended it.
func (m *moving) why(err error) error {
	if errors.Is(context.Cause(m.ctx), errSilent) {
		return errSilent
	}
	return err
}

type movingBody struct {
	io.ReadCloser
	m *moving
	// last marks the answer, with which all is over.
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
