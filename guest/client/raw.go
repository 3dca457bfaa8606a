package client

import "net/http"

// RoundTrip implements http.RoundTripper: it sends a request as it is, with the key.
// Relative paths start at the home of the request's user.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host = "http", "guest", "guest"
	out.Header["X-Access-Token"] = []string{*c.key.Load()}
	out.Header.Del("Bothy-Workdir")
	res, err := c.transport.RoundTrip(out)
	if err != nil {
		return nil, callError(r.Context(), err)
	}
	return res, nil
}

var _ http.RoundTripper = (*Client)(nil)
