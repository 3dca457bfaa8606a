//go:build race

package confined

// Raced says that the race detector is in this program. What it keeps of the memory takes terabytes of
// address space, so that no limit of it can hold.
const Raced = true
