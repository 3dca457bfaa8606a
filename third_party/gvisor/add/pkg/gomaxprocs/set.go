package gomaxprocs

// onSet is called to set how many processors there are, if it is set, and returns how
// many it was told the last time.
var onSet func(n int) int

func set(n int, otherwise func(int) int) int {
	if onSet != nil {
		return onSet(n)
	}
	return otherwise(n)
}
