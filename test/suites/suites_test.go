package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// runs runs suites, each of which takes a second, and returns at which second each began and what became of it.
func runs(t *testing.T, all []suite, failing ...string) (begun map[string]int, errs map[string]error) {
	begun, errs = map[string]int{}, map[string]error{}
	var mu sync.Mutex
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		runAll(t.Context(), all, func(_ context.Context, s suite) error {
			mu.Lock()
			begun[s.name] = int(time.Since(start).Seconds())
			mu.Unlock()
			time.Sleep(time.Second)
			if slices.Contains(failing, s.name) {
				return errors.New("broken")
			}
			return nil
		}, func(o outcome) { errs[o.name] = o.err })
	})
	return begun, errs
}

func TestTwoRunAtOnceUnlessOneRunsAlone(t *testing.T) {
	all := []suite{
		{name: "alone", alone: true, needs: []string{"a"}}, {name: "a"}, {name: "b", needs: []string{"a"}}, {name: "c"}, {name: "d"}, {name: "last", alone: true},
	}
	begun, errs := runs(t, all)
	want := map[string]int{"a": 0, "c": 0, "b": 1, "d": 1, "alone": 2, "last": 3}
	for name, at := range want {
		if begun[name] != at || errs[name] != nil {
			t.Errorf("%s began at %d (%v), not %d", name, begun[name], errs[name], at)
		}
	}
	if len(errs) != len(all) {
		t.Errorf("reported: %v", errs)
	}
}

func TestWhatNeedsAFailedSuiteIsNotRun(t *testing.T) {
	begun, errs := runs(t, []suite{{name: "a"}, {name: "b", needs: []string{"a"}}, {name: "c"}}, "a")
	if _, ran := begun["b"]; ran || errs["b"] == nil || errs["a"] == nil || errs["c"] != nil {
		t.Errorf("began %v, errors %v", begun, errs)
	}
}

func TestNeedsAreSuitesBefore(t *testing.T) {
	for i, s := range suites {
		for _, need := range s.needs {
			if !slices.ContainsFunc(suites[:i], func(s suite) bool { return s.name == need }) {
				t.Errorf("%s needs %s, which is not before it", s.name, need)
			}
		}
	}
}

func TestChosen(t *testing.T) {
	names := func(all []suite) (names []string) {
		for _, s := range all {
			names = append(names, s.name)
		}
		return names
	}
	some, err := choose([]string{"e2e", "mcp"}, false)
	if want := []string{"host", "mcp", "e2e"}; err != nil || !slices.Equal(names(some), want) {
		t.Errorf("%v %v", names(some), err)
	}
	all, err := choose(nil, false)
	if got := names(all); err != nil || !slices.Contains(got, "hosts") || slices.Contains(got, "guards") {
		t.Errorf("%v %v", got, err)
	}
	if _, err := choose([]string{"nothing"}, false); err == nil || !strings.Contains(err.Error(), "RUN may be host check") {
		t.Errorf("a suite that does not exist: %v", err)
	}
}

func TestSuitesAreSkippedByWhatTheyTest(t *testing.T) {
	for _, c := range []struct {
		name, file string
		touched    bool
	}{
		{"gvisor", "engine/gvisor/spawn.go", true},
		{"gvisor", "docs/quickstart.md", false},
		{"coding", "coding/folder/rules.go", true},
		{"e2e", "docs/quickstart.md", true}, // it is never skipped
	} {
		s, ok := named(c.name)
		if !ok || s.touched([]string{c.file}) != c.touched {
			t.Errorf("%s: whether %s tests %s is %v", c.file, c.name, c.file, !c.touched)
		}
	}
}

func TestTimes(t *testing.T) {
	all, err := readTests(strings.NewReader(`{"name":"a","seconds":1}` + "\n" + `{"name":"b","seconds":2.5}` + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	bySeconds(all)
	all[0].BusyPercent = processors{busy: 30, all: 50}.busySince(processors{busy: 10})
	var out strings.Builder
	times{Suites: all, Tests: all, Total: 3.5}.print(&out)
	if got := out.String(); !strings.Contains(got, "2.5s  b             processors  40 % busy\n     1.0s  a ") || !strings.Contains(got, "3.5s  in all") {
		t.Errorf("%s", got)
	}
	if _, err := readTests(strings.NewReader("b took 3 s\n")); err == nil {
		t.Error("a line that is not JSON was read")
	}
}
