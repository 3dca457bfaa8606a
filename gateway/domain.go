package gateway

import (
	"net/netip"
	"strings"

	"github.com/bothy-dev/bothy"
	"golang.org/x/net/idna"
)

const maxName = 253

// toASCII converts a name as written by a person to the form that DNS uses. Unlike the strict
// profiles it accepts underscores, which real names contain.
var toASCII = idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(false), idna.BidiRule())

// canonicalName returns the spelling in which names are compared: lower case, without a trailing
// dot, in punycode. It fails for anything that cannot be a host name.
func canonicalName(s string) (string, bool) {
	s = strings.TrimSuffix(s, ".")
	if !isASCII(s) {
		a, err := toASCII.ToASCII(s)
		if err != nil {
			return "", false
		}
		s = strings.TrimSuffix(a, ".")
	}
	s = strings.ToLower(s)
	if s == "" || len(s) > maxName {
		return "", false
	}
	for _, label := range strings.Split(s, ".") {
		if !validLabel(label) {
			return "", false
		}
	}
	return s, true
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func validLabel(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// domains is a set of name patterns, each with the rule that it came from.
type domains struct {
	exact map[string]string
	under map[string]string
}

// add adds a user's pattern: an exact name, or "*.example.org" for the names
// below example.org at any depth, but not example.org itself.
func (d *domains) add(pattern, rule string) error {
	base, wild := strings.CutPrefix(pattern, "*.")
	name, ok := canonicalName(base)
	if !ok || strings.Contains(base, "*") {
		return bothy.Errorf(bothy.CodeInvalid, "%q is not a domain pattern", pattern).
			WithHint("Use a name such as api.example.com, or *.example.com for every name below it.")
	}
	if looksNumeric(name) {
		return bothy.Errorf(bothy.CodeInvalid, "%q is an address, not a domain", pattern).
			WithHint("Put addresses into allow_cidrs, as in 192.0.2.7/32.")
	}
	if d.exact == nil {
		d.exact, d.under = map[string]string{}, map[string]string{}
	}
	if wild {
		d.under[name] = rule
	} else {
		d.exact[name] = rule
	}
	return nil
}

// looksNumeric reports whether programs could mistake name for an address: an IP address in any
// spelling ends in a label that is a number.
func looksNumeric(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// match returns the rule by which a canonical name is in the set.
func (d *domains) match(name string) (rule string, ok bool) {
	if rule, ok = d.exact[name]; ok {
		return rule, true
	}
	for rest := name; ; {
		_, after, found := strings.Cut(rest, ".")
		if !found {
			return "", false
		}
		if rule, ok = d.under[after]; ok {
			return rule, true
		}
		rest = after
	}
}
