package lifecycle

import "fmt"

// Problems tells the operator what is wrong although the service works.
func (s *Service) Problems() (found []string) {
	if s.o.DiskFull != nil && s.o.DiskFull() {
		found = append(found, "the disk under the state is full: no sandbox can be started or paused")
	}
	rows, events := s.ledger.CountUnsaved()
	if rows+events > 0 {
		found = append(found, fmt.Sprintf("the state of %d sandboxes and %d events cannot be stored and are kept in memory; see the server's log for the cause", rows, events))
	}
	s.mu.Lock()
	unattached, unclaimed := len(s.unattached), len(s.unclaimed)
	s.mu.Unlock()
	if unclaimed > 0 {
		found = append(found, fmt.Sprintf("the database has lost %d sandboxes whose machines are still running: they are frozen and kept; `bothy doctor` lists them", unclaimed))
	}
	if unattached > 0 {
		found = append(found, fmt.Sprintf("%d running sandboxes of the previous server cannot be attached yet; see the server's log for the cause", unattached))
	}
	return found
}
