//go:build !race

package confined

// Raced says that the race detector is in this program.
const Raced = false
