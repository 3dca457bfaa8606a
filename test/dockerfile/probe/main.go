// Probe describes the root file system that it runs in, and what it was started with, in
// lines. It is run in containers of Docker's and in sandboxes, to compare them.
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	newer, _ := strconv.ParseInt(os.Getenv("PROBE_NEWER"), 10, 64)
	skip := strings.Fields(os.Getenv("PROBE_SKIP"))
	if os.Getenv("PROBE_FILES") != "" {
		files(newer, skip)
		return
	}
	dir, _ := os.Getwd()
	groups, _ := os.Getgroups()
	slices.Sort(groups)
	fmt.Printf("cwd %s\n", dir)
	if !slices.Contains(skip, "$user") {
		groups = append(groups, os.Getgid())
		slices.Sort(groups)
		fmt.Printf("user %d:%d %v\n", os.Getuid(), os.Getgid(), slices.Compact(groups))
	}
	env := os.Environ()
	slices.Sort(env)
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "PROBE_") && !slices.Contains(skip, "$"+name) {
			fmt.Println("env", kv)
		}
	}
}

// files describes all files but those that are skipped.
func files(newer int64, skip []string) {
	first := map[uint64]string{}
	_ = filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		if slices.Contains(skip, path) {
			if d != nil && d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err != nil {
			fmt.Println(path, "unreadable:", err)
			return nil
		}
		fmt.Println(line(path, newer, first))
		return nil
	})
}

func line(path string, newer int64, first map[uint64]string) string {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return path + " " + err.Error()
	}
	s := fmt.Sprintf("%s %06o %d:%d", path, st.Mode, st.Uid, st.Gid)
	kind := st.Mode & unix.S_IFMT
	switch {
	case kind == unix.S_IFDIR: // changes with what is in it
	case st.Mtim.Sec >= newer:
		s += " new"
	default:
		s += fmt.Sprintf(" %d", st.Mtim.Sec)
	}
	switch kind {
	case unix.S_IFREG:
		s += fmt.Sprintf(" %d", st.Size)
		if fmt.Sprint(st.Mtim.Sec) == os.Getenv("PROBE_BASE") { // no step has written it
			break
		}
		text, err := os.ReadFile(path)
		s += fmt.Sprintf(" %.8x", sha256.Sum256(text))
		if err != nil {
			s += " " + err.Error()
		}
	case unix.S_IFLNK:
		to, _ := os.Readlink(path)
		s += " -> " + to
	case unix.S_IFCHR, unix.S_IFBLK:
		s += fmt.Sprintf(" %d,%d", unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev)))
	}
	if kind != unix.S_IFDIR && st.Nlink > 1 {
		if f, ok := first[st.Ino]; ok {
			s += " is " + f
		} else {
			first[st.Ino] = path
		}
	}
	return s + xattrs(path, kind)
}

func xattrs(path string, kind uint32) (s string) {
	if kind == unix.S_IFLNK {
		return ""
	}
	buf := make([]byte, 64<<10)
	n, err := syscall.Listxattr(path, buf)
	if err != nil {
		return ""
	}
	names := strings.FieldsFunc(string(buf[:n]), func(r rune) bool { return r == 0 })
	slices.Sort(names)
	for _, name := range names {
		value := make([]byte, 64<<10)
		if n, err := syscall.Getxattr(path, name, value); err == nil {
			s += fmt.Sprintf(" %s=%q", name, bytes.TrimRight(value[:n], "\x00"))
		}
	}
	return s
}
