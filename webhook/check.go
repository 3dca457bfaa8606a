package webhook

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bothy-dev/bothy"
)

// check refuses an invalid webhook, of which events are new. Others may be of types that only an earlier
// version had.
func (s *Service) check(w *bothy.Webhook, events []string) error {
	if n := utf8.RuneCountInString(w.Name); n > 100 {
		return bothy.Errorf(bothy.CodeInvalid, "name: it has %d characters", n).WithHint("Give 100 at most.")
	}
	if s.encoder(w.Format) == nil {
		return bothy.Errorf(bothy.CodeInvalid, "format: there is no format %q here", w.Format).WithHint("Leave it out, or give %q.", bothy.WebhookStandard)
	}
	for _, e := range events {
		if !slices.Contains(bothy.EventTypes, e) {
			return bothy.Errorf(bothy.CodeInvalid, "events: there are no events of the type %q", e).
				WithHint("The types are %s.", strings.Join(bothy.EventTypes, ", "))
		}
	}
	return checkURL(w.URL)
}

func checkURL(text string) error {
	const hint = "Give the address of the receiver, such as https://hooks.example.org/bothy."
	u, err := url.Parse(text)
	switch {
	case err != nil || len(text) > 2000:
		return bothy.Errorf(bothy.CodeInvalid, "url: it is not a URL").WithHint(hint)
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return bothy.Errorf(bothy.CodeInvalid, "url: it does not begin with https:// or http:// and a host").WithHint(hint)
	case u.User != nil:
		return bothy.Errorf(bothy.CodeInvalid, "url: it holds a user or a password").
			WithHint("Leave them out: the receiver knows requests by their signature.")
	case u.Fragment != "":
		return bothy.Errorf(bothy.CodeInvalid, "url: it has a fragment, which is never sent").WithHint("Leave out what begins with #.")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && a.Zone() != "" {
		return bothy.Errorf(bothy.CodeInvalid, "url: addresses with a zone are not reached").WithHint(hint)
	}
	return nil
}
