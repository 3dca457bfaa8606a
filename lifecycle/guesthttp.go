package lifecycle

import (
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
)

// guestHTTP is implemented by guests that support the protocol of E2B's agent. The response is
// from the guest and not to be trusted.
type guestHTTP interface {
	// RoundTrip is like http.RoundTripper, and adds the guest's key to the request.
	RoundTrip(r *http.Request) (*http.Response, error)
}

// GuestHTTP sends a request of an E2B client to the guest of a sandbox, with the sandbox's own
// key, and keeps the sandbox active until the response's body is closed. The path must be one
// that E2B's agent has.
func (s *Service) GuestHTTP(id string, r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	l, end, err := s.enter(ctx, id, bothy.ScopeSandboxesWrite, instance.ByRequest)
	if err != nil {
		return nil, err
	}
	var res *http.Response
	err = s.ask(ctx, l, func(g bothy.Guest) (err error) {
		h, ok := g.(guestHTTP)
		if !ok {
			return bothy.Errorf(bothy.CodeUnsupported, "the guest of sandbox %s does not support E2B clients", id)
		}
		res, err = h.RoundTrip(r)
		return err
	})
	if err != nil {
		end()
		return nil, err
	}
	res.Body = &usedReader{res.Body, end}
	return res, nil
}
