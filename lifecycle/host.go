package lifecycle

import "github.com/bothy-dev/bothy"

// Engines describes the engines. Those that are not open yet have only names.
func (s *Service) Engines() []bothy.HostEngine {
	list := []bothy.HostEngine{}
	for _, name := range s.engines.Names() {
		h := bothy.HostEngine{Name: name}
		if e := s.engines.Get(name); e != nil {
			i := e.Info()
			h.Open, h.Build, h.Kernel, h.Snapshots, h.Acceleration = true, i.Build, i.Kernel, i.Snapshots, i.Acceleration
		}
		list = append(list, h)
	}
	return list
}
