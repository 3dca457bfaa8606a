package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/bothy-dev/bothy"
)

// wakes reports whether memory can be woken on a host, as far as is known.
func wakes(h *bothy.ClusterHost, of *bothy.MemoryNeeds) bool {
	if of == nil {
		return true
	}
	p := h.Processor
	if p == nil || of.Processor == nil {
		return true
	}
	if of.Engine == "microvm" { // its processor is the same, or another
		shown := p.Shown(p.CPULevel)
		return shown.Vendor == of.Processor.Vendor && shown.Wakes(of.Processor) && of.Processor.Wakes(&shown)
	}
	return p.Wakes(of.Processor)
}

// NoHost is the error for memory that no host that lives can wake.
func NoHost(snapshotID string, needs bothy.MemoryNeeds, hosts []bothy.ClusterHost) error {
	what := "the memory of a sandbox"
	if snapshotID != "" {
		what = "the memory of snapshot " + snapshotID
	}
	wants := "the engine " + needs.Engine
	if needs.Processor != nil {
		wants += " and a processor like " + needs.Processor.String()
	}
	var has []string
	for i := range hosts {
		h := &hosts[i]
		if h.State == bothy.HostDead {
			continue
		}
		say := h.Name + " (" + string(h.State)
		if p := h.Processor; p != nil {
			say += ", " + p.String()
			if needs.Processor != nil && !p.Wakes(needs.Processor) {
				if lacks := p.Lacks(*needs.Processor); len(lacks) > 0 {
					say += " without " + bothy.FeatureList(lacks)
				} else {
					say += fmt.Sprintf(" with cache lines of %d bytes", p.CacheLine)
				}
			}
		}
		has = append(has, say+")")
	}
	return bothy.Errorf(bothy.CodeUnsupported, "%s can be woken on no host that takes it: it wants %s, and the hosts are %s", what, wants, strings.Join(has, ", ")).
		WithHint("Add such a host, or have one take sandboxes again. A paused sandbox comes back without its processes, with its files, where it is resumed with files_only.")
}

// tellProblems says of each host what the sandboxes of others may use that its processor has
// not: it could not wake their memory.
func tellProblems(hosts []bothy.ClusterHost) {
	for i := range hosts {
		h := &hosts[i]
		if h.Processor == nil {
			continue
		}
		for j := range hosts {
			o := &hosts[j]
			if j == i || o.Processor == nil || o.State == bothy.HostDead {
				continue
			}
			shown := o.Processor.Shown(o.Processor.CPULevel)
			if h.Processor.Wakes(&shown) {
				continue
			}
			h.ProcessorProblem = fmt.Sprintf("memory of sandboxes of the host %s cannot be woken here: they see %s, and this host has %s without %s. Set engine.cpu_level of all hosts to a level that each has.",
				o.Name, shown, h.Processor, bothy.FeatureList(h.Processor.Lacks(shown)))
			break
		}
	}
}

// ProcessorProblem is that of this host, or empty.
func ProcessorProblem(ctx context.Context, hosts interface {
	Hosts(ctx context.Context) ([]bothy.ClusterHost, error)
}) (string, error) {
	all, err := hosts.Hosts(ctx)
	if err != nil {
		return "", err
	}
	tellProblems(all)
	for _, h := range all {
		if h.Self {
			return h.ProcessorProblem, nil
		}
	}
	return "", nil
}
