// Package tuning lists the optimisations that make sentries faster or smaller than upstream
// gVisor, and can switch each off: so a maintainer can measure one alone, or find the one at
// fault. The server and its sentries read it. No sandbox needs any of them to be safe or
// correct.
package tuning

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/bothy-dev/bothy"
)

// Variable is the environment variable that lists what is off, separated by commas. The
// server passes it on to its sentries.
const Variable = "BOTHY_GVISOR_OFF"

// An Optimisation is one of them.
type Optimisation struct {
	// Name is its name in Variable.
	Name string `json:"name"`
	// Does describes it in one line.
	Does string `json:"does"`
	// Where is the file that implements it: a patch of third_party/gvisor, or a file of
	// engine/gvisor.
	Where string `json:"where"`
}

// Off is what is switched off.
type Off map[string]bool

// Parse reads the value of Variable.
func Parse(value string) (Off, error) {
	off := Off{}
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(All, func(o Optimisation) bool { return o.Name == name })
		switch {
		case name == "":
		case i < 0:
			return nil, bothy.Errorf(bothy.CodeInvalid, "%s names %q, which is not an optimisation of the gVisor engine", Variable, name).
				WithHint("There are: %s.", strings.Join(names(), ", "))
		default:
			off[name] = true
		}
	}
	return off, nil
}

func names() (list []string) {
	for _, o := range All {
		list = append(list, o.Name)
	}
	return list
}

// String returns a value for Variable.
func (o Off) String() string {
	var list []string
	for _, n := range names() {
		if o[n] {
			list = append(list, n)
		}
	}
	return strings.Join(list, ",")
}

// Env returns the variable with its value, for a sentry, or nothing.
func (o Off) Env() []string {
	if len(o) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s=%v", Variable, o)}
}

// Own returns what this process's environment switches off. It fails if that names an unknown
// optimisation.
var Own = sync.OnceValues(func() (Off, error) { return Parse(os.Getenv(Variable)) })

// On reports whether an optimisation is on in this process. A sentry may be older than the
// server that starts it, so it ignores names that it does not know.
func On(name string) bool { return !ownNames()[name] }

var ownNames = sync.OnceValue(func() map[string]bool {
	off := map[string]bool{}
	for name := range strings.SplitSeq(os.Getenv(Variable), ",") {
		off[strings.TrimSpace(name)] = true
	}
	return off
})
