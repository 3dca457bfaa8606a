package stateio

// Source returns what the data is read from, and how often its size at most comes of it.
func (brc *BufioReadCloser) Source() (any, int64) { return brc.Closer, 1 }
