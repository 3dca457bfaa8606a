// Command report prints what `go test -json` says as `go test` would, and adds the tests
// that were skipped, with their reasons, to a file.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

type event struct {
	Action, Package, ImportPath, Test, Output string
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go test -json … | report FILE")
		os.Exit(2)
	}
	skipped, err := os.OpenFile(os.Args[1], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err == nil {
		err = report(os.Stdin, os.Stdout, skipped)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// report writes the output of packages and of tests that failed to out.
func report(in io.Reader, out, skipped io.Writer) error {
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
	return lines.Err()
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
