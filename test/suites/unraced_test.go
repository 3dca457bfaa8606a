package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The suite unit leaves the tests that `unraced` names to a run without the race detector. Each of them is one test:
// a name that has gone says nothing, and one of two packages takes the other test's race detector away.
func TestEachTestWithoutTheRaceDetectorIsOne(t *testing.T) {
	script, err := os.ReadFile("../../scripts/suite")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^unraced='([\w|]+)'$`).FindSubmatch(script)
	if line == nil {
		t.Fatal("scripts/suite does not say which tests run without the race detector")
	}
	for _, name := range strings.Split(string(line[1]), "|") {
		found, err := git("grep", "-lE", `^func `+name+`\(t \*testing\.T\)`, "--", ":/*_test.go")
		if err != nil || len(found) != 1 {
			t.Errorf("%s is in %v (%v)", name, found, err)
		}
	}
}
