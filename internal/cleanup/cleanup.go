// Package cleanup keeps the undo of every step next to the step. Any package may
// use it.
package cleanup

// Stack is a list of undos. Its zero value is ready.
type Stack struct{ undos []func() }

// Add adds an undo.
func (s *Stack) Add(undo func()) { s.undos = append(s.undos, undo) }

// Run runs all undos, last first. Defer it immediately.
func (s *Stack) Run() {
	for i := len(s.undos) - 1; i >= 0; i-- {
		s.undos[i]()
	}
	s.undos = nil
}

// Release forgets the undos, on success.
func (s *Stack) Release() { s.undos = nil }
