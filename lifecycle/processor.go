package lifecycle

import (
	"fmt"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

// setProcessor records which processor features a sandbox's processes may use: those visible when the
// restored memory was written, or those that this server shows to new sandboxes.
func (s *Service) setProcessor(sb *store.Sandbox, woken *snapshot.Manifest) {
	i := s.engines.Get(sb.Engine).Info()
	sb.CPULevel, sb.Processor = i.CPULevel, nil
	if woken != nil && woken.Processor != nil && !same(*woken.Processor, i.Shown) {
		sb.Processor = woken.Processor
	}
}

// same reports whether memory can be restored in either direction between two processors.
func same(a, b bothy.Processor) bool { return a.Known() && b.Known() && a.Wakes(&b) && b.Wakes(&a) }

// processorOf returns the processor features that a sandbox's processes may use, or nil if
// unknown.
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

// needsOf returns what a host needs to restore a snapshot's memory.
func needsOf(m *snapshot.Manifest) *bothy.MemoryNeeds {
	return &bothy.MemoryNeeds{Engine: m.Engine, Build: m.EngineBuild, Processor: m.Processor}
}

// missing describes a processor and what it lacks compared to another.
func missing(has bothy.Processor, of *bothy.Processor) string {
	lacks := has.Lacks(*of)
	if len(lacks) == 0 {
		return fmt.Sprintf("%s with cache lines of %d bytes instead of %d", has, has.CacheLine, of.CacheLine)
	}
	return fmt.Sprintf("%s without %s", has, bothy.FeatureList(lacks))
}

// MemoryOf returns what a host needs to restore the memory of a sandbox running here; nil for
// any other.
func (s *Service) MemoryOf(sb *store.Sandbox) *bothy.MemoryNeeds {
	l := s.instance(sb.ID)
	if l == nil || sb.State != bothy.StateRunning {
		return nil
	}
	return &bothy.MemoryNeeds{Engine: sb.Engine, Build: l.Machine.Build(), Processor: s.processorOf(sb)}
}
