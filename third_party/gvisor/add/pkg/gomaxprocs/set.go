package gomaxprocs

// OnSet is called to set how many processors there are, if it is set, and returns how
// many it was told the last time.
var OnSet func(n int) int

func set(n int, otherwise func(int) int) int {
	if OnSet != nil {
		return OnSet(n)
	}
	return otherwise(n)
}
