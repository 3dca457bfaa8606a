package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Lists of tests in scripts/suite take them out of a run, such as that with the race detector. Each name is that of
// one test: a name that has gone says nothing, and one of two packages takes the other test out as well.
func TestEachListedTestIsOne(t *testing.T) {
	script, err := os.ReadFile("../../scripts/suite")
	if err != nil {
		t.Fatal(err)
	}
	lists := regexp.MustCompile(`(?m)^(\w+)='(Test[\w|]+)'$`).FindAllSubmatch(script, -1)
	if len(lists) < 3 {
		t.Fatalf("scripts/suite has %d lists of tests", len(lists))
	}
	for _, list := range lists {
		for _, name := range strings.Split(string(list[2]), "|") {
			found, err := git("grep", "-lE", `^func `+name+`\(t \*testing\.T\)`, "--", ":/*_test.go")
			if err != nil || len(found) != 1 {
				t.Errorf("%s: %s is in %v (%v)", list[1], name, found, err)
			}
		}
	}
}
