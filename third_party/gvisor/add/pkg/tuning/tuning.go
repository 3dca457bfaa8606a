// Package tuning says which of the optimisations that patches make are on.
package tuning

import (
	"os"
	"slices"
	"strings"
)

// Variable is the environment variable that names what is off, separated by commas.
const Variable = "BOTHY_GVISOR_OFF"

var off = strings.Split(os.Getenv(Variable), ",")

// On reports whether one is on.
func On(name string) bool { return !slices.Contains(off, name) }
