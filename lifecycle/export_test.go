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
