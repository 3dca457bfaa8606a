// Package tuning says which optimisations of the patches are on.
package tuning

import (
	"os"
	"slices"
	"strings"
)

// Variable is the environment variable that lists the optimisations that are off, separated by commas.
const Variable = "BOTHY_GVISOR_OFF"

var off = strings.Split(os.Getenv(Variable), ",")

// On reports whether an optimisation is on.
func On(name string) bool { return !slices.Contains(off, name) }
