package lifecycle

import "fmt"

// Problems says what is wrong although the service works, for the operator.
func (s *Service) Problems() (found []string) {
	if s.o.DiskFull != nil && s.o.DiskFull() {
		found = append(found, "the disk under the state is full: no sandbox can be started or paused")
	}
	rows, events := s.ledger.CountUnsaved()
	if rows+events > 0 {
		found = append(found, fmt.Sprintf("the state of %d sandboxes and %d events cannot be stored and are kept in memory; the server's log says why", rows, events))
	}
	s.mu.Lock()
	unattached, unclaimed := len(s.unattached), len(s.unclaimed)
	s.mu.Unlock()
	if unclaimed > 0 {
		found = append(found, fmt.Sprintf("the database has lost %d sandboxes whose machines run: they are frozen and kept aside; `bothy doctor` lists them", unclaimed))
	}
	if unattached > 0 {
		found = append(found, fmt.Sprintf("%d sandboxes of the last server run and could not be taken over yet; the server's log says why", unattached))
	}
	return found
}
