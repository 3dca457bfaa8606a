// Command plain runs tests against the programs that `make plain` builds from gVisor as
// it is published. They must pass but for those that list names, each of which must fail:
// what works after all is no longer to be promised less of. `make test-plain` runs it, and
// `make test` a part (-short).
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module begins the import paths of all packages.
const module = "github.com/bothy-dev/bothy/"

// packages are those whose tests start sandboxes, or look into the library.
var packages = []string{"engine/gvisor", "engine/gvisor/entry", "test/e2e"}

// inShort are the tests of test/e2e that are run with -short: each looks at another thing
// that a sandbox's kernel does.
var inShort = []string{
	"TestAPlainLinux", "TestLimitsAreShownInside", "TestProcessOneCannotBeAttacked", "TestWritingToKernelFiles",
	"TestFillingMemoryFileSystems", "TestStartsThatFail", "TestPool", "TestNeighboursCannotMeet",
}

func main() {
	short := flag.Bool("short", false, "run the engine's tests and a part of those of the whole")
	flag.Parse()
	if err := run(*short); err != nil {
		fmt.Fprintln(os.Stderr, "plain:", err)
		os.Exit(1)
	}
}

func run(short bool) error {
	bothy, err := filepath.Abs("bin/plain/bothy")
	if err != nil {
		return err
	}
	if _, err := os.Stat(bothy); err != nil {
		return fmt.Errorf("%w: run `make plain` first", err)
	}
	os.Setenv("BOTHY_E2E", "1")
	os.Setenv("BOTHY_BIN", bothy)
	os.Setenv("BOTHY_BINARY", bothy)
	// The tests build a sentry themselves: of the plain library, too.
	os.Setenv("GOFLAGS", "-trimpath -buildvcs=false")

	all := results{}
	for _, p := range packages {
		args := []string{"test", "-json", "-count=1", "-timeout=60m"}
		if short && p == "test/e2e" {
			args = append(args, "-run=^("+strings.Join(inShort, "|")+")$")
		}
		if err := test(append(args, "./"+p), all); err != nil {
			return err
		}
	}
	return all.judge(os.Stdout, list, !short)
}

// test adds what became of tests that the go command runs.
func test(args []string, to results) error {
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	rerr := to.read(out)
	werr := cmd.Wait() // that tests fail is known from what it says
	if rerr != nil {
		return fmt.Errorf("go %s: %w (%v)", strings.Join(args, " "), rerr, werr)
	}
	return nil
}

// results are what became of tests, by package and name. The name of a package as a whole
// is empty.
type results map[name]*result

type name struct{ Package, Test string }

func (n name) String() string { return strings.TrimSpace(n.Package + " " + n.Test) }

type result struct {
	action string // pass, fail or skip
	output strings.Builder
}

// read reads the events that go test -json writes.
func (r results) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		var e struct{ Action, Package, Test, Output string }
		if json.Unmarshal(line, &e) != nil {
			return fmt.Errorf("it says %s", line)
		}
		n := name{strings.TrimPrefix(e.Package, module), e.Test}
		if r[n] == nil {
			r[n] = &result{}
		}
		switch e.Action {
		case "output":
			r[n].output.WriteString(e.Output)
		case "pass", "fail", "skip":
			r[n].action = e.Action
		}
	}
}
