// Command suites runs the suites of tests, two at a time where they allow it, and says where the time went.
// scripts/test starts it, once all of them can run. What a suite prints appears with its name in front, and is
// kept in bin/test-logs.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// logs is the folder of what suites print.
const logs = "bin/test-logs"

// shown is how many lines are repeated at the end of each suite that failed.
const shown = 40

func main() {
	long := flag.Bool("long", false, "also run the suites that are long and rarely break")
	all := flag.Bool("all", false, "skip no suite because what it tests has not changed")
	check := flag.Bool("check", false, "only check that there are suites with these names")
	base := flag.String("base", "", "what files are compared with: a commit, instead of the last that passed")
	flag.Parse()
	if *check {
		if _, err := choose(flag.Args(), true); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		return
	}
	passed, err := run(flag.Args(), *long, *all || *long, *base)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if !passed {
		os.Exit(1)
	}
}

func run(names []string, long, all bool, base string) (passed bool, err error) {
	chosen, err := choose(names, long)
	if err != nil {
		return false, err
	}
	var skipped []string
	if !all && len(names) == 0 {
		if chosen, skipped, err = unchanged(chosen, base); err != nil {
			return false, err
		}
	}
	if err := cmp.Or(settle(), os.MkdirAll(logs, 0o755)); err != nil {
		return false, err
	}
	measured, err := os.CreateTemp("", "bothy-test-times-")
	if err != nil {
		return false, err
	}
	defer os.Remove(measured.Name())
	os.Setenv("BOTHY_TEST_TIMES", measured.Name())

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	begun := time.Now()
	out := &output{w: os.Stdout}
	t := times{Begun: begun}
	var failed []outcome
	runAll(ctx, chosen, out.command, func(o outcome) {
		t.Suites = append(t.Suites, spent{o.name, o.took.Seconds(), o.busyPercent})
		if o.err == nil {
			out.say("== %s: passed in %.0fs (after %.0fs)", o.name, o.took.Seconds(), time.Since(begun).Seconds())
			return
		}
		failed = append(failed, o)
		out.say("== %s: FAILED after %.0fs: %v", o.name, o.took.Seconds(), o.err)
	})
	t.Total = time.Since(begun).Seconds()
	if t.Tests, err = readTests(measured); err != nil {
		return false, err
	}
	if head, err := git("rev-parse", "HEAD"); err == nil {
		t.Commit = head[0]
	}
	bySeconds(t.Suites)
	bySeconds(t.Tests)
	t.print(os.Stdout)
	for _, name := range skipped {
		fmt.Printf("== skipped %s: nothing that it tests has changed since a run that passed (ALL=1 runs it)\n", name)
	}
	if err := printSkipped(os.Stdout, filepath.Join(os.Getenv("BOTHY_TEST_WORK"), "skipped")); err != nil {
		return false, err
	}
	for _, o := range failed { // last, since only the end may be kept
		fmt.Printf("== FAILED: %s: %v. Alone: make test RUN=%s. All that it said is in %s.log, and this is the end:\n", o.name, o.err, o.name, filepath.Join(logs, o.name))
		fmt.Print(tail(o.name))
	}
	if err := t.save(); err != nil || len(failed) > 0 {
		return false, err
	}
	fmt.Printf("== passed in %.0fs\n", t.Total)
	if len(names) == 0 {
		err = notePassed()
	}
	return true, err
}

// choose returns the named suites and what they need, in their order, or all.
func choose(names []string, long bool) ([]suite, error) {
	wanted := map[string]bool{}
	for _, name := range names {
		s, ok := named(name)
		if !ok {
			return nil, fmt.Errorf("there is no suite %s: RUN may be %s", name, strings.Join(allNames(), " "))
		}
		wanted[name] = true
		for _, n := range s.needs {
			wanted[n] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(suites), func(s suite) bool {
		return len(names) > 0 && !wanted[s.name] || len(names) == 0 && s.long && !long
	}), nil
}

func allNames() (names []string) {
	for _, s := range suites {
		names = append(names, s.name)
	}
	return names
}

// unchanged takes out the suites that test nothing that has changed, and names them.
func unchanged(all []suite, base string) (left []suite, skipped []string, err error) {
	files, ok, err := changedSince(base)
	if err != nil || !ok {
		return all, nil, err
	}
	for _, s := range all {
		if s.touched(files) {
			left = append(left, s)
		} else {
			skipped = append(skipped, s.name)
		}
	}
	return left, skipped, nil
}

// output is what several suites write to, line by line.
type output struct {
	mu sync.Mutex
	w  io.Writer
}

func (o *output) say(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Fprintf(o.w, format+"\n", args...)
}

// command runs scripts/suite for a suite. When ctx ends it is asked to end.
func (o *output) command(ctx context.Context, s suite) error {
	o.say("== %s", s.name)
	log, err := os.Create(filepath.Join(logs, s.name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, "scripts/suite", s.name)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = w, w
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	err = cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.follow(s.name, io.TeeReader(r, log))
	}()
	err = cmd.Wait()
	select {
	case <-done:
	case <-time.After(5 * time.Second): // something that it left behind holds the pipe
		err = cmp.Or(err, fmt.Errorf("it has left a process behind that still writes"))
	}
	r.Close()
	<-done
	return err
}

func (o *output) follow(name string, r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			o.say("%-12s | %s", name, strings.TrimSuffix(line, "\n"))
		}
		if err != nil {
			return
		}
	}
}

// printSkipped prints the tests that were skipped, which each suite added to a file.
func printSkipped(w io.Writer, path string) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	lines := slices.Sorted(strings.Lines(string(b)))
	_, err = fmt.Fprintf(w, "== skipped tests\n%s", strings.Join(lines, ""))
	return err
}

// tail is the end of what a suite printed.
func tail(name string) string {
	b, err := os.ReadFile(filepath.Join(logs, name+".log"))
	if err != nil {
		return err.Error() + "\n"
	}
	lines := strings.SplitAfter(string(b), "\n")
	return strings.Join(lines[max(0, len(lines)-shown):], "")
}
