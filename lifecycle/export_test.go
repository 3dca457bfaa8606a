package lifecycle

// WaitingFor counts who hold the lock of a sandbox or wait for it.
func (s *Service) WaitingFor(id string) int {
	return s.ledger.LockUsers(id)
}

// Ran reports whether the interpreters of a sandbox count as its user's.
func (s *Service) Ran(id string) bool {
	return s.instance(id).CodeRan()
}
