package command

// forkRow executes a batch of calls, see abi.PrctlBatch, the last of which is a vfork. The child
// executes another batch, whose last call is an exec; if that fails, its error is put into the
// Result of the record after that batch. It returns the child's pid, or a negative error number.
func forkRow(number, op, row, n, child, m uintptr) (r uintptr)
