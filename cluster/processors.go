package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/bothy-dev/bothy"
)

// wakes reports whether memory can be restored on a host, as far as is known.
func wakes(h *bothy.ClusterHost, of *bothy.MemoryNeeds) bool {
	if of == nil {
		return true
	}
	p := h.Processor
	if p == nil || of.Processor == nil {
		return true
	}
	if of.Engine == "microvm" { // a virtual machine needs exactly the same features
		shown := p.Shown(p.CPULevel)
		return shown.Vendor == of.Processor.Vendor && shown.Wakes(of.Processor) && of.Processor.Wakes(&shown)
	}
	return p.Wakes(of.Processor)
}

// NoHost is the error for memory that no live host can restore.
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
	if len(has) > 0 {
		wants += ", and the hosts are " + strings.Join(has, ", ")
	}
	return bothy.Errorf(bothy.CodeUnsupported, "no host can restore %s: it requires %s", what, wants).
		WithHint("Add such a host, or uncordon one. With files_only a paused sandbox resumes with its files but without its processes.")
}

// setProblems sets on each host which features, visible to the sandboxes of other hosts, its
// processor lacks: it could not restore their memory.
func setProblems(hosts []bothy.ClusterHost) {
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
			h.ProcessorProblem = fmt.Sprintf("the memory of sandboxes of the host %s cannot be restored here: they see %s, and this host has %s without %s. Set engine.cpu_level of all hosts to a level that every host supports.",
				o.Name, shown, h.Processor, bothy.FeatureList(h.Processor.Lacks(shown)))
			break
		}
	}
}

// ProcessorProblem returns the problem of this host's processor, or "".
func ProcessorProblem(ctx context.Context, hosts interface {
	Hosts(ctx context.Context) ([]bothy.ClusterHost, error)
}) (string, error) {
	all, err := hosts.Hosts(ctx)
	if err != nil {
		return "", err
	}
	setProblems(all)
	for _, h := range all {
		if h.Self {
			return h.ProcessorProblem, nil
		}
	}
	return "", nil
}
