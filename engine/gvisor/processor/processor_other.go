//go:build !amd64

package processor

// Env is empty: there is nothing to tell.
func Env() string { return "" }
