//go:build !amd64

package processor

import "github.com/bothy-dev/bothy"

// Host returns a processor of which nothing is known.
func Host() bothy.Processor { return bothy.Processor{} }

// Env returns nothing: there is nothing to pass on.
func Env() string { return "" }
