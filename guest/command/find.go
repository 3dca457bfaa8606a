package command

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/abi"
)

// findProgram returns the path of a program. A name without a slash is looked
// for in the PATH that the program itself will see.
func (m *Manager) findProgram(name string, env []string, dir string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	var paths []string
	for _, d := range filepath.SplitList(lookupEnv(env, "PATH")) {
		path := filepath.Join(d, name)
		if d == "" || !filepath.IsAbs(d) {
			path = filepath.Join(dir, d, name)
		}
		paths = append(paths, path)
	}
	var found error = syscall.ENOENT
	for i, mode := range m.modes(paths) {
		switch {
		case mode&unix.S_IFMT != unix.S_IFREG:
		case mode&0o111 != 0:
			return paths[i], nil
		default:
			found = syscall.EACCES
		}
	}
	return "", found
}

// modes returns the modes of files, 0 for missing ones.
func (m *Manager) modes(paths []string) iter.Seq2[int, uint32] {
	if m.rows {
		return slices.All(modesInRow(paths))
	}
	return func(yield func(int, uint32) bool) {
		for i, path := range paths {
			var st unix.Stat_t
			if unix.Stat(path, &st) != nil {
				st.Mode = 0
			}
			if !yield(i, st.Mode) {
				return
			}
		}
	}
}

// maxRow is the most calls in a batch of stats.
const maxRow = 32

func modesInRow(paths []string) []uint32 {
	modes := make([]uint32, 0, len(paths))
	here := unix.AT_FDCWD
	for some := range slices.Chunk(paths, maxRow) {
		r := row{calls: make([]abi.BatchCall, 0, len(some))}
		stats := make([]unix.Stat_t, len(some))
		for i, path := range some {
			p, err := text(&r, path)
			if err != nil {
				p, _ = text(&r, "") // no file has that name
			}
			r.add(unix.SYS_NEWFSTATAT, uint64(here), p, pointer(&r, &stats[i]))
		}
		r.runAll()
		r.release()
		for _, st := range stats {
			modes = append(modes, st.Mode)
		}
	}
	return modes
}

// lookupEnv returns the value that takes effect: the last one.
func lookupEnv(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(env[i], "="); ok && k == name {
			return v
		}
	}
	return ""
}

// startError explains why a command could not be started. The kernel says
// little more than "no such file"; this finds out what is missing.
func startError(s Spec, err error) error {
	name := s.Argv[0]
	if e := dirError(s.Dir); e != nil {
		return e.Because(err)
	}
	if e := lengthError(s); e != nil {
		return e.Because(err)
	}
	if dir := closed(s); dir != "" && (errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM)) {
		return bothy.Errorf(bothy.CodeInvalid, "the working directory %q is closed to the user %s: the permissions of %q do not let it in", s.Dir, s.User.Name, dir).
			WithHint("Open it again as root (`chmod 755 %s` with user \"root\"), or give another `cwd`, such as /tmp.", dir).Because(err)
	}
	switch {
	case errors.Is(err, syscall.ENOENT):
		return notFound(name, s).Because(err)
	case isFolder(s):
		return bothy.Errorf(bothy.CodeCommandInvalid, "%q is a folder and cannot be executed", name).
			WithHint("Give the path of a program in it, or a command that looks into it, such as ls.").Because(err)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return bothy.Errorf(bothy.CodeCommandInvalid, "%q cannot be executed by this user", name).
			WithHint("Make the file executable (chmod +x), check the folders above it, or run it through its interpreter.").Because(err)
	case errors.Is(err, syscall.ENOEXEC):
		return bothy.Errorf(bothy.CodeCommandInvalid, "%q is not a program that this system can run", name).
			WithHint("A script needs a first line such as #!/bin/sh; a binary must be built for this processor.").Because(err)
	case errors.Is(err, syscall.E2BIG):
		return bothy.Errorf(bothy.CodeTooLarge, "the arguments and the environment are too long").
			WithHint("Pass large data through a file or the standard input.").Because(err)
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return bothy.Errorf(bothy.CodeCapacity, "the sandbox has no room for another process").
			WithHint("End some processes; `ulimit -u` shows how many there may be, and more memory_mb allows more.").Because(err)
	case errors.Is(err, syscall.EINVAL) && hasNUL(s):
		return bothy.Errorf(bothy.CodeCommandInvalid, "the command, its environment or its folder contains a NUL byte, which cannot be passed to a program").
			WithHint("Leave NUL bytes out; data that has them goes through a file or the standard input.").Because(err)
	case errors.Is(err, syscall.EINVAL):
		return bothy.Errorf(bothy.CodeCommandInvalid, "the format of %q is damaged", name).
			WithHint("Look at it with `file`, and install the program again.").Because(err)
	}
	return bothy.Errorf(bothy.CodeCommandInvalid, "%q could not be started", name).
		WithHint("Try it in a shell, which says more.").Because(err)
}

// Linux's limits: for one argument, or variable of the environment, with its terminating byte,
// and for all of them together.
const (
	maxArgument  = 128 << 10
	maxArguments = 2 << 20
)

// lengthError explains which argument or environment is too long for any
// program, or returns nil. The kernels report this with different error
// numbers.
func lengthError(s Spec) *bothy.Error {
	const hint = "Write it to a file and run that (files.write, then `bash FILE`), or pass it through the standard input: `bash -s` reads a script there."
	total := 0
	for i, arg := range s.Argv {
		total += len(arg) + 1
		if len(arg) >= maxArgument {
			what := fmt.Sprintf("argument %d of the command", i)
			if i == len(s.Argv)-1 && i > 0 && strings.HasPrefix(s.Argv[i-1], "-") && strings.HasSuffix(s.Argv[i-1], "c") {
				what = "the command's line"
			}
			return bothy.Errorf(bothy.CodeCommandInvalid, "%s has %d bytes, and Linux takes at most %d in one", what, len(arg), maxArgument-1).WithHint(hint)
		}
	}
	for _, kv := range s.Env {
		total += len(kv) + 1
		if len(kv) >= maxArgument {
			name, _, _ := strings.Cut(kv, "=")
			return bothy.Errorf(bothy.CodeCommandInvalid, "the environment variable %s has %d bytes, and Linux takes at most %d in one", name, len(kv), maxArgument-1).
				WithHint("Pass large data through a file or the standard input.")
		}
	}
	if total >= maxArguments {
		return bothy.Errorf(bothy.CodeCommandInvalid, "the command's arguments and environment have %d bytes, and Linux takes less than %d", total, maxArguments).WithHint(hint)
	}
	return nil
}

func hasNUL(s Spec) bool {
	return strings.ContainsRune(s.Dir, 0) || slices.ContainsFunc(append(slices.Clip(s.Argv), s.Env...), func(v string) bool { return strings.ContainsRune(v, 0) })
}

// isFolder reports whether the command is a directory.
func isFolder(s Spec) bool {
	path := s.Argv[0]
	if !strings.Contains(path, "/") {
		return false
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.Dir, path)
	}
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// ioError explains why no pipes or terminal could be made for a command.
func ioError(err error) error {
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) {
		return bothy.Errorf(bothy.CodeCapacity, "too many commands with open output run in the sandbox").
			WithHint("End some of them first.").Because(err)
	}
	return bothy.Errorf(bothy.CodeUnsupported, "no terminal or pipe could be opened in the sandbox").
		WithHint("/dev/ptmx and /dev/pts must be there and usable.").Because(err)
}

// dirError explains what is wrong with a working directory, or returns nil.
func dirError(dir string) *bothy.Error {
	info, err := os.Stat(dir)
	switch {
	case dir == "" || err == nil && info.IsDir():
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return bothy.Errorf(bothy.CodeInvalid, "the working directory %q does not exist", dir).
			WithHint("Make it first, or leave out `cwd` to start in %s.", bothy.DefaultCwd)
	case err == nil || errors.Is(err, syscall.ENOTDIR):
		return bothy.Errorf(bothy.CodeInvalid, "the working directory %q is not a directory", dir).
			WithHint("Give a directory as `cwd`.")
	}
	return bothy.Errorf(bothy.CodeInvalid, "the working directory %q cannot be used", dir).
		WithHint("Check its path and permissions, or leave out `cwd` to start in %s.", bothy.DefaultCwd)
}

// closed returns the folder on the way to the working directory that the command's user may not
// enter, or "".
func closed(s Spec) string {
	if s.User == nil || s.User.UID == 0 || !filepath.IsAbs(s.Dir) {
		return ""
	}
	at := "/"
	for _, part := range append(strings.Split(strings.Trim(filepath.Clean(s.Dir), "/"), "/"), "") {
		var st unix.Stat_t
		if unix.Stat(at, &st) != nil {
			return ""
		}
		enter := uint32(0o001)
		switch {
		case st.Uid == s.User.UID:
			enter = 0o100
		case st.Gid == s.User.GID || slices.Contains(s.User.Groups, st.Gid):
			enter = 0o010
		}
		if st.Mode&enter == 0 {
			return at
		}
		at = filepath.Join(at, part)
	}
	return ""
}

// notFound distinguishes a missing program from a missing interpreter.
func notFound(name string, s Spec) *bothy.Error {
	path := name
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		path = filepath.Join(s.Dir, name)
	}
	if info, err := os.Stat(path); strings.Contains(name, "/") && err == nil && info.Mode().IsRegular() {
		if i := interpreter(path); i != "" {
			return bothy.Errorf(bothy.CodeCommandInvalid, "%q needs %q, which does not exist", name, i).
				WithHint("Install that interpreter, or change the script's first line.")
		}
		return bothy.Errorf(bothy.CodeCommandInvalid, "%q needs a loader or library that does not exist", name).
			WithHint("The program was built for another system; use a static build or another template.")
	}
	return bothy.Errorf(bothy.CodeCommandNotFound, "the command %q was not found", name).
		WithHint("Check the name and PATH; a string is run by the shell, an array starts its first element as a program.")
}

// interpreter returns the program that a script's first line names.
func interpreter(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	head := make([]byte, 256)
	n, _ := f.Read(head)
	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	rest, ok := bytes.CutPrefix(line, []byte("#!"))
	if !ok {
		return ""
	}
	if f := bytes.Fields(rest); len(f) > 0 {
		return string(f[0])
	}
	return ""
}
