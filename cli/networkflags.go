package cli

import (
	"net/netip"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/bothy-dev/bothy"
)

// networkFlags say which destinations a sandbox may reach.
type networkFlags struct {
	mode    string
	presets []string
	domains []string
	cidrs   []string
	ports   []string
	denied  []string
}

func (f *networkFlags) add(flags *pflag.FlagSet) { f.addFor(flags, "off") }

// addFor is add with a different default mode.
func (f *networkFlags) addFor(flags *pflag.FlagSet, byDefault string) {
	flags.StringVar(&f.mode, "network", "", "network `mode`: off, restricted (package registries, GitHub, LLM APIs) or open (default "+byDefault+")")
	flags.StringSliceVar(&f.presets, "preset", nil, "restrict the network to this `preset` of destinations (repeatable)")
	flags.StringSliceVar(&f.domains, "allow-domain", nil, "restrict the network to this `domain`, as in *.example.org (repeatable)")
	flags.StringSliceVar(&f.cidrs, "allow-cidr", nil, "restrict the network to this `range` of addresses, as in 192.0.2.0/24 (repeatable)")
	flags.StringSliceVar(&f.ports, "allow-port", nil, "restrict the network to this `port` (repeatable)")
	flags.StringSliceVar(&f.denied, "deny-cidr", nil, "with --network open, close this `range` of addresses (repeatable)")
}

// network returns nil if no flag was given.
func (f *networkFlags) network() (*bothy.Network, error) {
	n := bothy.Network{Mode: bothy.NetworkMode(f.mode), Presets: f.presets, AllowDomains: f.domains}
	var err error
	if n.AllowCIDRs, err = parsePrefixes("--allow-cidr", f.cidrs); err != nil {
		return nil, err
	}
	if n.DenyCIDRs, err = parsePrefixes("--deny-cidr", f.denied); err != nil {
		return nil, err
	}
	for _, text := range f.ports {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return nil, usagef("Ports go from 1 to 65535.", "--allow-port %q is not a port", text)
		}
		n.AllowPorts = append(n.AllowPorts, uint16(port))
	}
	return f.check(n)
}

func (f *networkFlags) check(n bothy.Network) (*bothy.Network, error) {
	switch n.Mode {
	case "":
		if n.IsPlain() {
			return nil, nil
		}
		n.Mode = bothy.NetworkRestricted
		if len(f.denied) > 0 {
			n.Mode = bothy.NetworkOpen
		}
	case bothy.NetworkOff, bothy.NetworkOpen:
		if len(f.presets)+len(f.domains) > 0 && len(f.denied) == 0 {
			return nil, usagef("Use --network restricted with these flags, or leave --network out.",
				"--network %s does not go with a list of what is allowed", n.Mode)
		}
	case bothy.NetworkRestricted:
	default:
		return nil, usagef("Use off, restricted or open.", "network mode %q is not known", f.mode)
	}
	return &n, nil
}

func parsePrefixes(flag string, texts []string) (list []netip.Prefix, err error) {
	for _, text := range texts {
		prefix, err := parsePrefix(text)
		if err != nil {
			return nil, usagef("Write it as in 192.0.2.0/24.", "%s %q is not a range of addresses", flag, text)
		}
		list = append(list, prefix)
	}
	return list, nil
}

// parsePrefix reads a range, or one address.
func parsePrefix(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	return netip.ParsePrefix(text)
}
