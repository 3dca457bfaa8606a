package stateio

// Source returns the underlying reader, and the largest ratio by which its data can expand.
func (brc *BufioReadCloser) Source() (any, int64) { return brc.Closer, 1 }
