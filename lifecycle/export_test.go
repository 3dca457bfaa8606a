package lifecycle

// WaitingFor counts who hold the lock of a sandbox or wait for it.
func (s *Service) WaitingFor(id string) int {
	s.locks.mu.Lock()
	defer s.locks.mu.Unlock()
	if l := s.locks.m[id]; l != nil {
		return l.users
	}
	return 0
}

// Ran reports whether the interpreters of a sandbox count as its user's.
func (s *Service) Ran(id string) bool {
	l := s.liveByID(id)
	l.still.mu.Lock()
	defer l.still.mu.Unlock()
	return l.still.ran
}
