//go:build !amd64

package processor

import "github.com/bothy-dev/bothy"

// Host is a processor of which nothing is known.
func Host() bothy.Processor { return bothy.Processor{} }

// Env is empty: there is nothing to tell.
func Env() string { return "" }
