package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// passedFile holds the commit of the last run of all suites that passed, with nothing changed since it.
const passedFile = "bin/test-passed"

// changedSince lists the files that differ from the base, and reports whether there is one: BASE, or else the
// commit of the last run that passed.
func changedSince(base string) (files []string, ok bool, err error) {
	if base == "" {
		b, err := os.ReadFile(passedFile)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, false, nil
		} else if err != nil {
			return nil, false, err
		}
		base = strings.TrimSpace(string(b))
	}
	differ, err := git("diff", "--name-only", base)
	if err != nil {
		return nil, false, err
	}
	untracked, err := git("ls-files", "--others", "--exclude-standard")
	return slices.Concat(differ, untracked), true, err
}

// notePassed records the commit, unless something has changed since it.
func notePassed() error {
	changed, err := git("status", "--porcelain")
	if err != nil || len(changed) > 0 {
		return err
	}
	head, err := git("rev-parse", "HEAD")
	if err != nil {
		return err
	}
	return os.WriteFile(passedFile, []byte(head[0]+"\n"), 0o644)
}

func git(args ...string) ([]string, error) {
	out, err := exec.Command("git", append([]string{"-c", "core.quotePath=off"}, args...)...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = errors.New("git " + strings.Join(args, " ") + ": " + strings.TrimSpace(string(exit.Stderr)))
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' }), err
}

// touched reports whether a suite tests one of the files.
func (s suite) touched(files []string) bool {
	return len(s.guards) == 0 || slices.ContainsFunc(files, func(file string) bool {
		return slices.ContainsFunc(s.guards, func(guard string) bool { return strings.HasPrefix(file, guard) })
	})
}
