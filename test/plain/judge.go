package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// An exception is a test that fails with the plain library.
type exception struct {
	name
	// Why says what the plain library has not.
	Why string
	// Sometimes marks one that may pass by luck. All others must fail.
	Sometimes bool
}

// judge says what is not as it must be. With all, every exception must have been run.
func (r results) judge(w io.Writer, exceptions []exception, all bool) error {
	var errs []error
	excused := map[name]bool{}
	for _, x := range exceptions {
		excused[x.name] = true
		got := r[x.name]
		switch {
		case got == nil && all:
			errs = append(errs, fmt.Errorf("%v is an exception, and there is no such test", x.name))
		case got == nil || x.Sometimes:
		case got.action == "pass" || got.action == "skip":
			errs = append(errs, fmt.Errorf("%v is an exception (%s), and ends with %q: take it off the list", x.name, x.Why, got.action))
		default:
			fmt.Fprintf(w, "%v fails as expected: %s\n", x.name, x.Why)
		}
	}
	passed := 0
	for _, n := range slices.SortedFunc(maps.Keys(r), byName) {
		switch {
		case r[n].action == "pass" && n.Test != "":
			passed++
		case r[n].action == "pass" || r[n].action == "skip" || r.isExcused(n, excused) || r.isBecauseOfOthers(n):
		default:
			fmt.Fprint(w, r[n].output.String())
			errs = append(errs, fmt.Errorf("%v fails", n))
		}
	}
	if passed == 0 {
		errs = append(errs, errors.New("no test passed"))
	}
	fmt.Fprintf(w, "%d tests and parts of them pass\n", passed)
	return errors.Join(errs...)
}

func byName(a, b name) int {
	return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Test, b.Test))
}

// isExcused reports whether the test, or one of which it is a part, is an exception.
func (r results) isExcused(n name, excused map[name]bool) bool {
	for n.Test != "" {
		if excused[n] {
			return true
		}
		n.Test = n.Test[:max(0, strings.LastIndex(n.Test, "/"))]
	}
	return false
}

// isBecauseOfOthers reports whether a test has ended as failed, and so has a part of it.
func (r results) isBecauseOfOthers(n name) bool {
	if r[n].action != "fail" {
		return false
	}
	for m, other := range r {
		isPart := n.Test == "" && m.Test != "" || n.Test != "" && strings.HasPrefix(m.Test, n.Test+"/")
		if m.Package == n.Package && isPart && other.action == "fail" {
			return true
		}
	}
	return false
}
