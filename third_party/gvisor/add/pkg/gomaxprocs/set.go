package gomaxprocs

// OnSet, if set, is called to set the number of processors, and returns the previous
// number.
var OnSet func(n int) int

func set(n int, otherwise func(int) int) int {
	if OnSet != nil {
		return OnSet(n)
	}
	return otherwise(n)
}
