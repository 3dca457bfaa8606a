package command

import (
	"bytes"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
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

// modes tells the modes of files, 0 for those that are not there.
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

// maxRow is how many calls a row of stats has.
const maxRow = 32

func modesInRow(paths []string) []uint32 {
	modes := make([]uint32, 0, len(paths))
	here := unix.AT_FDCWD
	for some := range slices.Chunk(paths, maxRow) {
		r := row{calls: make([]bothy.GuestCall, 0, len(some))}
		stats := make([]unix.Stat_t, len(some))
		for i, path := range some {
			p, err := text(&r, path)
			if err != nil {
				p, _ = text(&r, "") // no file has that name
			}
			r.add(unix.SYS_NEWFSTATAT, uint64(here), p, pointer(&r, &stats[i]))
		}
		r.runAll()
		for _, st := range stats {
			modes = append(modes, st.Mode)
		}
	}
	return modes
}

// lookupEnv returns the value that counts: the last one.
func lookupEnv(env []string, name string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(env[i], "="); ok && k == name {
			return v
		}
	}
	return ""
}

// startError explains why a command could not be started. The kernel says
// little more than "no such file"; what is missing is found out here.
func startError(s Spec, err error) error {
	name := s.Argv[0]
	if e := dirError(s.Dir); e != nil {
		return e.Because(err)
	}
	switch {
	case errors.Is(err, syscall.ENOENT):
		return notFound(name, s).Because(err)
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
	case errors.Is(err, syscall.EINVAL):
		return bothy.Errorf(bothy.CodeCommandInvalid, "the command, its environment or its folder holds a NUL byte, or its format is damaged").
			WithHint("Leave NUL bytes out; check the program with `file`.").Because(err)
	}
	return bothy.Errorf(bothy.CodeCommandInvalid, "%q could not be started", name).
		WithHint("Try it in a shell, which says more.").Because(err)
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

// notFound tells a missing program from a missing interpreter.
func notFound(name string, s Spec) *bothy.Error {
	path := name
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		path = filepath.Join(s.Dir, name)
	}
	if info, err := os.Stat(path); strings.Contains(name, "/") && err == nil && info.Mode().IsRegular() {
		if i := interpreter(path); i != "" {
			return bothy.Errorf(bothy.CodeCommandInvalid, "%q needs %q, which is not there", name, i).
				WithHint("Install that interpreter, or change the script's first line.")
		}
		return bothy.Errorf(bothy.CodeCommandInvalid, "%q needs a loader or library that is not there", name).
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
