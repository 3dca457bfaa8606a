// Package cleanup keeps the undo of every step next to the step. Any package may
// use it.
package cleanup

// Stack is a list of undos. Its zero value is ready.
type Stack struct{ undos []func() }

// Add puts an undo on top.
func (s *Stack) Add(undo func()) { s.undos = append(s.undos, undo) }

// Run undoes everything that was added, last first. Defer it at once.
func (s *Stack) Run() {
	for i := len(s.undos) - 1; i >= 0; i-- {
		s.undos[i]()
	}
	s.undos = nil
}

// Release forgets the undos: all went well.
func (s *Stack) Release() { s.undos = nil }
