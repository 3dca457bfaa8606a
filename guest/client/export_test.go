package client

// BoundAnswers sets how long an answer may be, in bytes, until undo is called.
func BoundAnswers(n int64) (undo func()) {
	was := maxUnary
	maxUnary = n
	return func() { maxUnary = was }
}
