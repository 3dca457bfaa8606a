package lifecycle

import (
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
)

// guestHTTP is what a bothy.Guest can do that speaks the protocol of E2B's agent. The
// answer is the guest's own and as little to be trusted as anything of it.
type guestHTTP interface {
	// RoundTrip is that of http.RoundTripper; the guest's key is put into the request.
	RoundTrip(r *http.Request) (*http.Response, error)
}

// GuestHTTP sends a request of an E2B client to the guest of a sandbox, with the
// sandbox's own key, and holds the sandbox awake until the answer's body is closed.
// The path must be one of those that E2B's agent has.
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
			return bothy.Errorf(bothy.CodeUnsupported, "the agent of sandbox %s does not speak to E2B clients", id)
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
