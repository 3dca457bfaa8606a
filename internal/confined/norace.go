//go:build !race

package confined

// raced says that the race detector is in this program.
const raced = false
