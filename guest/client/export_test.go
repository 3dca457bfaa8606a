package client

// BoundListings limits the length of a listing to n bytes until undo is called.
func BoundListings(n int) (undo func()) {
	was := maxListing
	maxListing = n
	return func() { maxListing = was }
}
