package lifecycle

import (
	"context"

	"github.com/bothy-dev/bothy"
)

// Spares are machines that an engine has half started. The engine gives them to
// whatever start they fit.

func (s *Service) preparer(engine string) bothy.Preparer {
	p, _ := s.engines.Get(engine).(bothy.Preparer)
	return p
}

// spareSpec is what a spare of a shape is made for.
func (s *Service) spareSpec(h shape, t *bothy.Template) bothy.MachineSpec {
	sb := h.sandbox("", t)
	spec := s.machines.machineSpec(sb, t)
	spec.Hostname = "sandbox"
	return spec
}

// addSpare prepares one more where one is wanted.
func (s *Service) addSpare(ctx context.Context, wanted []want) bool {
	for _, w := range wanted {
		p := s.preparer(w.engine)
		if p == nil || !s.maySucceed(w.shape) {
			continue
		}
		spec := s.spareSpec(w.shape, w.template)
		if countSpares(p.Spares(), spec.Kind()) >= w.spares {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, s.engines.Patience(w.engine, startTimeout))
		defer cancel()
		if err := p.Prepare(ctx, spec); err != nil {
			s.pool.mu.Lock()
			s.pool.fails(w.shape, w.template, s.clock.Now())
			s.pool.mu.Unlock()
			s.logPool("prepare a machine", w.shape, err)
		}
		return true
	}
	return false
}

func countSpares(list []bothy.Spare, kind bothy.MachineSpec) int {
	for _, x := range list {
		if x.Kind == kind {
			return x.Count
		}
	}
	return 0
}

// dropSpares ends the spares that are not among the wanted.
func (s *Service) dropSpares(ctx context.Context, wanted []want) {
	keep := map[string][]bothy.Spare{}
	for _, w := range wanted {
		keep[w.engine] = append(keep[w.engine], bothy.Spare{Kind: s.spareSpec(w.shape, w.template).Kind(), Count: w.spares})
	}
	for name := range s.engines.Opened() {
		if p := s.preparer(name); p != nil {
			if err := p.KeepSpares(ctx, keep[name]); err != nil {
				s.log.Warn("cannot end spare machines", "engine", name, "error", err)
			}
		}
	}
}

// dropOneSpare ends a spare, and reports whether there was one.
func (s *Service) dropOneSpare(ctx context.Context) bool {
	for name := range s.engines.Opened() {
		p := s.preparer(name)
		if p == nil {
			continue
		}
		if keep := p.Spares(); len(keep) > 0 {
			keep[0].Count--
			if err := p.KeepSpares(ctx, keep); err != nil {
				s.log.Warn("cannot end a spare machine", "engine", name, "error", err)
			}
			return true
		}
	}
	return false
}

func (s *Service) countSpares() (n int) {
	for name := range s.engines.Opened() {
		if p := s.preparer(name); p != nil {
			for _, x := range p.Spares() {
				n += x.Count
			}
		}
	}
	return n
}
