package command

// forkRow makes a row of calls, see abi.PrctlBatch, the last of which makes
// a child that shares all memory while the caller stands still. The child makes
// another row, whose last call executes a program; when that fails its error is
// put into the Result of the record behind that row. It returns the child's id, or
// a negative error number.
func forkRow(number, op, row, n, child, m uintptr) (r uintptr)
