package e2b

import (
	"fmt"
	"maps"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
)

// rule says how requests to a host are changed.
type rule struct {
	Transform *transform `json:"transform,omitempty"`
}

type transform struct {
	Headers map[string]string `json:"headers,omitempty"`
}

const (
	// rulePrefix begins the names of the secrets that are made from rules.
	rulePrefix = "e2b-rule-"
	// masked is shown in place of a header's value.
	masked = "***"
	// identityPrefix begins what E2B's own service replaces with a token.
	identityPrefix = "${e2b.identity."
)

// secretsOf translates the rules for headers. Of two for the same header of a host, the later
// one counts.
func (n *network) secretsOf() ([]bothy.Secret, error) {
	list := []bothy.Secret{}
	for _, host := range slices.Sorted(maps.Keys(n.Rules)) {
		headers := map[string]string{}
		for _, r := range n.Rules[host] {
			if r.Transform == nil {
				continue
			}
			for name, value := range r.Transform.Headers {
				headers[textproto.CanonicalMIMEHeaderKey(name)] = value
			}
		}
		if _, err := netip.ParsePrefix(host); err == nil && len(headers) > 0 {
			return nil, unsupported("headers can be set for names of hosts, and not for addresses (rules of %s)", host)
		}
		for _, name := range slices.Sorted(maps.Keys(headers)) {
			if strings.Contains(headers[name], identityPrefix) {
				return nil, unsupported("workload identity does not exist here (rules of %s)", host)
			}
			list = append(list, bothy.Secret{
				Name: fmt.Sprint(rulePrefix, len(list)+1), Value: headers[name], Hosts: []string{host}, Header: name, Override: true,
				AllowEcho: !isCredential(name),
			})
		}
	}
	return list, nil
}

// isCredential reports whether a header is likely to contain something that a host must not send
// back.
func isCredential(header string) bool {
	header = strings.ToLower(header)
	return slices.ContainsFunc([]string{"auth", "key", "token", "secret", "cookie", "password", "signature"}, func(part string) bool {
		return strings.Contains(header, part)
	})
}

// shown is a network without the values of headers, which only its gateway has.
func (n *network) shown() *network {
	c := *n
	c.Rules = maps.Clone(n.Rules)
	for host, rules := range c.Rules {
		rules = slices.Clone(rules)
		for i, r := range rules {
			if r.Transform == nil {
				continue
			}
			t := transform{Headers: maps.Clone(r.Transform.Headers)}
			for name := range t.Headers {
				t.Headers[name] = masked
			}
			rules[i].Transform = &t
		}
		c.Rules[host] = rules
	}
	return &c
}

// replaceRules returns the secrets that a sandbox will have from now on, or nil to leave them
// unchanged. Secrets that were set through other APIs are kept.
func replaceRules(sb *bothy.Sandbox, n *network) ([]bothy.Secret, error) {
	list, err := n.secretsOf()
	if err != nil {
		return nil, err
	}
	own := slices.DeleteFunc(slices.Clone(sb.SecretNames), func(name string) bool { return strings.HasPrefix(name, rulePrefix) })
	switch {
	case len(own) > 0 && len(list) > 0:
		return nil, unsupported("the sandbox has secrets of Bothy's own API, which rules would replace (%s)", strings.Join(own, ", ")).
			WithHint("Change its secrets by that API: PATCH /v1/sandboxes/ID")
	case len(own) > 0 || len(list) == 0 && len(sb.SecretNames) == 0:
		return nil, nil
	}
	return list, nil
}

// onlyRules reports whether all secrets of a sandbox come from rules.
func onlyRules(sb *bothy.Sandbox) bool {
	return len(sb.SecretNames) > 0 && !slices.ContainsFunc(sb.SecretNames, func(name string) bool { return !strings.HasPrefix(name, rulePrefix) })
}
