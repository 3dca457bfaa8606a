package warm

import (
	"context"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle/instance"
	"github.com/bothy-dev/bothy/store"
)

// Spares are prespawned machines: an engine has started them halfway, and uses them for
// whatever start they fit.

func (s *Pool) preparer(engine string) bothy.Preparer {
	p, _ := s.o.Engines.Get(engine).(bothy.Preparer)
	return p
}

// spareSpec is the spec of a spare for a class.
func (s *Pool) spareSpec(h class, t *store.Template) bothy.MachineSpec {
	sb := h.sandbox("", t)
	spec := s.o.Machines.MachineSpec(sb, t)
	spec.Hostname = "sandbox"
	return spec
}

// addSpare prepares one spare if one is wanted.
func (s *Pool) addSpare(ctx context.Context, wanted []want) bool {
	for _, w := range wanted {
		p := s.preparer(w.engine)
		if p == nil || !s.maySucceed(w.class) {
			continue
		}
		spec := s.spareSpec(w.class, w.template)
		if countSpares(p.Spares(), spec.Kind()) >= w.spares {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, s.o.Engines.Patience(w.engine, instance.StartTimeout))
		defer cancel()
		if err := p.Prepare(ctx, spec); err != nil {
			s.pool.mu.Lock()
			s.pool.fails(w.class, w.template, s.o.Clock.Now())
			s.pool.mu.Unlock()
			s.logPool("prepare a machine", w.class, err)
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

// dropSpares ends unwanted spares.
func (s *Pool) dropSpares(ctx context.Context, wanted []want) {
	keep := map[string][]bothy.Spare{}
	for _, w := range wanted {
		keep[w.engine] = append(keep[w.engine], bothy.Spare{Kind: s.spareSpec(w.class, w.template).Kind(), Count: w.spares})
	}
	for name := range s.o.Engines.Opened() {
		if p := s.preparer(name); p != nil {
			if err := p.KeepSpares(ctx, keep[name]); err != nil {
				s.o.Log.Warn("cannot end spare machines", "engine", name, "error", err)
			}
		}
	}
}

// dropOneSpare ends a spare, and reports whether there was one.
func (s *Pool) dropOneSpare(ctx context.Context) bool {
	for name := range s.o.Engines.Opened() {
		p := s.preparer(name)
		if p == nil {
			continue
		}
		if keep := p.Spares(); len(keep) > 0 {
			keep[0].Count--
			if err := p.KeepSpares(ctx, keep); err != nil {
				s.o.Log.Warn("cannot end a spare machine", "engine", name, "error", err)
			}
			return true
		}
	}
	return false
}

func (s *Pool) countSpares() (n int) {
	for name := range s.o.Engines.Opened() {
		if p := s.preparer(name); p != nil {
			for _, x := range p.Spares() {
				n += x.Count
			}
		}
	}
	return n
}
