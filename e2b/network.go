package e2b

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/bothy-dev/bothy"
)

// network is a client's network settings.
type network struct {
	Public     *bool             `json:"allowPublicTraffic,omitempty"`
	AllowOut   []string          `json:"allowOut,omitempty"`
	DenyOut    []string          `json:"denyOut,omitempty"`
	Rules      map[string][]rule `json:"rules,omitempty"`
	Proxy      any               `json:"egressProxy,omitempty"`
	MaskHost   string            `json:"maskRequestHost,omitempty"`
	DNSServers []string          `json:"dnsServers,omitempty"`
	HTTPSPorts []int             `json:"httpsPorts,omitempty"`
}

func (d *Door) networkRoutes() []Route {
	return []Route{
		route("PUT /sandboxes/{sandboxID}/network", "set-network", bothy.ScopeSandboxesWrite, d.setNetwork),
	}
}

// check refuses settings that have no equivalent here.
func (n *network) check() error {
	switch {
	case n.Proxy != nil:
		return unsupported("a proxy for what leaves a sandbox (egressProxy) does not exist here")
	case len(n.DNSServers) > 0:
		return unsupported("a sandbox has one DNS server, which is this server's (dnsServers)")
	case n.MaskHost != "":
		return unsupported("the Host header of requests to ports cannot be changed (maskRequestHost)")
	case len(n.HTTPSPorts) > 0:
		return unsupported("the servers in a sandbox are spoken to in plain HTTP (httpsPorts)")
	}
	return nil
}

// policyOf translates a network into a policy. By default everything is allowed. Allow rules
// take precedence over deny rules, so if everything is denied, only what is allowed remains.
func policyOf(internet *bool, n *network) (*bothy.Network, error) {
	if n == nil {
		n = &network{}
	}
	if err := n.check(); err != nil {
		return nil, err
	}
	denied := internet != nil && !*internet
	var ranges []netip.Prefix
	for _, text := range n.DenyOut {
		p, err := prefixOf(text)
		if err != nil {
			return nil, invalid("denyOut: %q is not a range of addresses, such as 192.0.2.0/24", text)
		}
		denied = denied || p.Bits() == 0
		ranges = append(ranges, p)
	}
	policy := &bothy.Network{Mode: bothy.NetworkRestricted}
	for _, text := range n.AllowOut {
		if p, err := prefixOf(text); err == nil {
			policy.AllowCIDRs = append(policy.AllowCIDRs, p)
		} else {
			policy.AllowDomains = append(policy.AllowDomains, strings.TrimSuffix(text, "."))
		}
	}
	switch {
	case !denied && len(ranges) > 0:
		policy.Mode, policy.DenyCIDRs = bothy.NetworkOpen, ranges
	case !denied:
		return &bothy.Network{Mode: bothy.NetworkOpen}, nil
	case len(n.AllowOut) == 0:
		return &bothy.Network{Mode: bothy.NetworkOff}, nil
	}
	return policy, nil
}

func prefixOf(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}

// mark stores the requested settings, so that they can be returned.
func (in *newSandbox) mark(m map[string]string) {
	if in.Internet != nil {
		m[markInternet] = strconv.FormatBool(*in.Internet)
	}
	if in.Network == nil {
		return
	}
	if in.Network.Public != nil && !*in.Network.Public {
		m[markPrivate] = "true"
	}
	markOf(m, in.Network)
}

func markOf(m map[string]string, n *network) {
	if b, err := json.Marshal(n.shown()); err == nil {
		m[markNetwork] = string(b)
	}
}

func networkOf(sb *bothy.Sandbox) *network {
	var n network
	text := sb.Metadata[markNetwork]
	if text == "" || json.Unmarshal([]byte(text), &n) != nil {
		return nil
	}
	return &n
}

// setNetwork replaces the network of a running sandbox.
func (d *Door) setNetwork(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		network
		Internet *bool `json:"allow_internet_access"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	policy, err := policyOf(in.Internet, &in.network)
	if err != nil {
		return err
	}
	id := d.id(r)
	sb, err := d.found(r.Context(), id)
	if err != nil {
		return err
	}
	if stateOf(sb.State) != "running" {
		return bothy.Errorf(bothy.CodeConflict, "sandbox %q is paused", id)
	}
	secrets, err := replaceRules(sb, &in.network)
	if err != nil {
		return err
	}
	if before := networkOf(sb); before != nil {
		in.Public = before.Public
	}
	m := maps.Clone(sb.Metadata)
	if m == nil {
		m = map[string]string{}
	}
	delete(m, markInternet)
	if in.Internet != nil {
		m[markInternet] = strconv.FormatBool(*in.Internet)
	}
	markOf(m, &in.network)
	if _, err := d.Sandboxes.Update(r.Context(), id, bothy.SandboxUpdate{Network: policy, Metadata: m, Secrets: secrets}); err != nil {
		return err
	}
	return done(w)
}
