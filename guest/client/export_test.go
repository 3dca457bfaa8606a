package client

// BoundAnswers limits the length of an answer to n bytes until undo is called.
func BoundAnswers(n int64) (undo func()) {
	was := maxUnary
	maxUnary = n
	return func() { maxUnary = was }
}
