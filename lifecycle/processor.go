package lifecycle

import (
	"fmt"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

// sees notes what a sandbox's processes may use of the processor: what was so when the memory
// was written that they woke from, or what this server shows to new ones.
func (s *Service) sees(sb *store.Sandbox, woken *snapshot.Manifest) {
	i := s.engines.Get(sb.Engine).Info()
	sb.CPULevel, sb.Processor = i.CPULevel, nil
	if woken != nil && woken.Processor != nil && !same(*woken.Processor, i.Shown) {
		sb.Processor = woken.Processor
	}
}

// same reports whether what can be woken on one processor can be woken on another.
func same(a, b bothy.Processor) bool { return a.Known() && b.Known() && a.Wakes(&b) && b.Wakes(&a) }

// processorOf is what a sandbox's processes may use of the processor, or nil where that is not
// known.
func (s *Service) processorOf(sb *store.Sandbox) *bothy.Processor {
	if sb.Processor != nil {
		return sb.Processor
	}
	i := s.engines.Get(sb.Engine).Info()
	p := i.Shown
	if sb.CPULevel != i.CPULevel && i.Host.Known() { // an earlier server started it
		p = i.Host.Shown(sb.CPULevel)
	}
	if !p.Known() {
		return nil
	}
	return &p
}

// needsOf is what a host must have to wake a snapshot's memory.
func needsOf(m *snapshot.Manifest) *bothy.MemoryNeeds {
	return &bothy.MemoryNeeds{Engine: m.Engine, Build: m.EngineBuild, Processor: m.Processor}
}

// missing says what a processor has, and what it lacks of another.
func missing(has bothy.Processor, of *bothy.Processor) string {
	lacks := has.Lacks(*of)
	if len(lacks) == 0 {
		return fmt.Sprintf("%s with cache lines of %d bytes and not of %d", has, has.CacheLine, of.CacheLine)
	}
	return fmt.Sprintf("%s without %s", has, bothy.FeatureList(lacks))
}

// MemoryOf is what a host must have to wake the memory of a sandbox that runs here; nil for
// any other.
func (s *Service) MemoryOf(sb *store.Sandbox) *bothy.MemoryNeeds {
	l := s.instance(sb.ID)
	if l == nil || sb.State != bothy.StateRunning {
		return nil
	}
	return &bothy.MemoryNeeds{Engine: sb.Engine, Build: l.Machine.Build(), Processor: s.processorOf(sb)}
}
