// Command report prints what `go test -json` says as `go test` would, and adds the tests
// that were skipped, with their reasons, to a file, and how long each test took to another.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// module begins the import paths of all packages.
const module = "github.com/bothy-dev/bothy/"

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go test -json … | report SKIPPED TIMES")
		os.Exit(2)
	}
	skipped, err := appendTo(os.Args[1])
	if err == nil {
		var times *os.File
		if times, err = appendTo(os.Args[2]); err == nil {
			err = report(os.Stdin, os.Stdout, skipped, times)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func appendTo(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
}

// report writes the output of packages and of tests that failed to out, and after it what each of those
// found and how to run it alone.
func report(in io.Reader, out, skipped, times io.Writer) error {
	var failed []string
	found := ""                 // by the tests that failed
	said := map[string]string{} // by package and test
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Action == "" {
			fmt.Fprintln(out, lines.Text()) // something other than go test wrote it
			continue
		}
		name := e.Package + " " + e.Test
		if e.Test != "" && !strings.Contains(e.Test, "/") && (e.Action == "pass" || e.Action == "fail") {
			if err := took(times, e); err != nil {
				return err
			}
			if e.Action == "fail" {
				failed = append(failed, fmt.Sprintf("make test RUN=%s TEST='^%s$'", cmp.Or(os.Getenv("BOTHY_TEST_SUITE"), "unit"), e.Test))
			}
		}
		switch e.Action {
		case "build-output":
			fmt.Fprint(out, e.Output)
		case "output":
			if e.Test != "" {
				said[name] += e.Output
			} else if e.Output != "PASS\n" && !strings.Contains(e.Output, "[no test files]") {
				fmt.Fprint(out, e.Output)
			}
		case "fail":
			fmt.Fprint(out, said[name])
			found += findings(e.Test, said[name])
			delete(said, name)
		case "skip":
			if e.Test != "" {
				fmt.Fprintf(skipped, "%s %s: %s\n", e.Package, e.Test, reason(said[name]))
			}
			delete(said, name)
		case "pass":
			delete(said, name)
		}
	}
	// What did not end, such as a test in which the program ended.
	for _, text := range said {
		fmt.Fprint(out, text)
	}
	fmt.Fprint(out, found)
	for _, command := range failed {
		fmt.Fprintln(out, "alone:", command)
	}
	return lines.Err()
}

// mostFindings is how many of a test's findings are repeated at the end.
const mostFindings = 5

var (
	// finding is what a test said of an error, with its next lines.
	finding = regexp.MustCompile(`(?m)^\s*\w+_test\.go:\d+: .*\n(?: {8}.*\n){0,4}`)
	// otherwise is what ended a test that did not say so itself, or what a helper said.
	otherwise = regexp.MustCompile(`(?m)^\s*(?:\w+\.go:\d+: |panic: |fatal error: |WARNING: DATA RACE).*\n`)
)

// findings are the beginnings of what a test said of its errors.
func findings(test, said string) (text string) {
	lines := finding.FindAllString(said, mostFindings)
	if len(lines) == 0 {
		lines = otherwise.FindAllString(said, mostFindings)
	}
	for _, line := range lines {
		text += test + ": " + strings.TrimLeft(line, " \n")
	}
	return text
}

// took adds a line with how long a test took.
func took(times io.Writer, e event) error {
	b, err := json.Marshal(map[string]any{"name": strings.TrimPrefix(e.Package, module) + " " + e.Test, "seconds": e.Elapsed})
	if err == nil {
		_, err = fmt.Fprintf(times, "%s\n", b)
	}
	return err
}

var place = regexp.MustCompile(`^\s*\w+\.go:\d+: `)

// reason is what a skipped test said.
func reason(said string) string {
	var words []string
	for line := range strings.Lines(said) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			words = append(words, place.ReplaceAllString(line, ""))
		}
	}
	if text := strings.Join(words, " "); text != "" {
		return text
	}
	return "no reason given"
}
