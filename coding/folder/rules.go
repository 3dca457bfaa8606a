package folder

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
)

// rules say what is not copied. What .gitignore named when they were made remains ignored, so
// that a program inside cannot get a file copied in by editing it.
type rules struct {
	local   string
	exclude gitignore.Matcher
	// all also copies what .gitignore names.
	all bool
	// first is what was ignored at the beginning, and now what is ignored now.
	first, now gitignore.Matcher
	// tracked are names that git tracks although they are ignored.
	tracked map[string]bool
}

func newRules(local string, exclude []string, ignored bool) (rules, error) {
	var list []gitignore.Pattern
	for _, line := range exclude {
		if strings.TrimSpace(line) == "" {
			return rules{}, fmt.Errorf("--exclude %q names nothing", line)
		}
		list = append(list, gitignore.ParsePattern(line, nil))
	}
	r := rules{local: local, exclude: gitignore.NewMatcher(list), all: ignored}
	err := r.read()
	r.first = r.now
	return r, err
}

// read reads the current .gitignore files.
func (r *rules) read() error {
	if r.all {
		return nil
	}
	var list []gitignore.Pattern
	info, err := patterns(filepath.Join(r.local, ".git/info/exclude"), nil)
	if err != nil {
		return err
	}
	list = append(list, info...)
	r.tracked = map[string]bool{}
	for _, name := range trackedAll(r.local) {
		for ; name != "."; name = filepath.Dir(name) {
			r.tracked[name] = true
		}
	}
	err = filepath.WalkDir(r.local, func(full string, d fs.DirEntry, err error) error {
		if err != nil {
			return skip(d) // scan reports it
		}
		name, err := filepath.Rel(r.local, full)
		if err != nil || !d.IsDir() {
			return err
		}
		if name == ".git" || matches(r.exclude, name, true) || name != "." && matches(gitignore.NewMatcher(list), name, true) && !r.tracked[name] {
			return fs.SkipDir
		}
		found, err := patterns(filepath.Join(full, ".gitignore"), domain(name))
		list = append(list, found...)
		return err
	})
	r.now = gitignore.NewMatcher(list)
	return err
}

func domain(folder string) []string {
	if folder == "." {
		return nil
	}
	return strings.Split(folder, "/")
}

// patterns parses a .gitignore. Git ignores links, too.
func patterns(file string, domain []string) (list []gitignore.Pattern, err error) {
	info, err := os.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("cannot tell what is ignored: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if line := lines.Text(); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, gitignore.ParsePattern(line, domain))
		}
	}
	return list, lines.Err()
}

// trackedAll lists the files that git tracks although .gitignore names them. Without git,
// or without a repository, there are none.
func trackedAll(local string) []string {
	if _, err := os.Lstat(filepath.Join(local, ".git")); err != nil {
		return nil
	}
	out, err := exec.Command("git", "-C", local, "ls-files", "-z", "--cached", "--ignored", "--exclude-standard").Output()
	if err != nil {
		return nil
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
}

// ignored reports whether an entry is not copied.
func (r *rules) ignored(name string, folder bool) bool {
	if matches(r.exclude, name, folder) {
		return true
	}
	if r.all || name == ".git" || strings.HasPrefix(name, ".git/") || r.tracked[name] {
		return false
	}
	return matches(r.first, name, folder) || matches(r.now, name, folder)
}

// matches checks an entry and its parent folders: everything in an ignored folder is
// ignored.
func matches(m gitignore.Matcher, name string, folder bool) bool {
	parts := strings.Split(name, "/")
	for i := 1; i < len(parts); i++ {
		if m.Match(parts[:i], true) {
			return true
		}
	}
	return m.Match(parts, folder)
}
