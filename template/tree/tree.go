// Package tree represents root file systems in memory: every file's name, mode, owner, times
// and extended attributes, and where its bytes are on disk. It reads trees from EROFS images
// and from the layers of container images, changes them, writes changes as a layer, and writes
// whole trees as EROFS images.
//
// Nothing in a tree exists as a file on the host, so untrusted links, devices and owners are
// only data: no path in a tree leads to a path on the host.
package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maxLinks limits the symbolic links on the way to one file, as Linux does.
const maxLinks = 40

// A Node is a file. One with several names (hard links) is a single Node. Nodes are shared
// between a tree and its clones, so only Tree's methods change them, by replacing them.
type Node struct {
	Mode     uint32 // type and permissions, as in stat(2)
	UID, GID uint32
	Time     time.Time // of the last change of the content, in whole seconds
	Target   string    // of a symbolic link
	Major    uint32    // of a device
	Minor    uint32
	Xattrs   map[string]string
	Data     Data // of a regular file

	children map[string]*Node // of a folder
	// successor is set while a tree is settled.
	successor *Node
}

// IsDir reports whether the node is a folder.
func (n *Node) IsDir() bool { return n.Mode&unix.S_IFMT == unix.S_IFDIR }

// IsLink reports whether the node is a symbolic link.
func (n *Node) IsLink() bool { return n.Mode&unix.S_IFMT == unix.S_IFLNK }

// IsFile reports whether the node is a regular file.
func (n *Node) IsFile() bool { return n.Mode&unix.S_IFMT == unix.S_IFREG }

// Names lists the entries of a folder, in order.
func (n *Node) Names() []string { return slices.Sorted(maps.Keys(n.children)) }

// Child returns a folder's entry with a name, or nil.
func (n *Node) Child(name string) *Node { return n.children[name] }

// copy returns a node with the same children that can be changed.
func (n *Node) copy() *Node {
	c := *n
	c.children = maps.Clone(n.children)
	return &c
}

// A Tree is a root file system. A tree and its clones may be used by different goroutines, each
// by one at a time.
type Tree struct{ root *Node }

// New returns an empty tree.
func New(at time.Time) *Tree { return &Tree{newDir(at)} }

func newDir(at time.Time) *Node {
	return &Node{Mode: unix.S_IFDIR | 0o755, Time: at.Truncate(time.Second), children: map[string]*Node{}}
}

// Clone returns a copy that can be changed. It shares files, but not folders, with t.
func (t *Tree) Clone() *Tree { return &Tree{cloneDir(t.root)} }

func cloneDir(n *Node) *Node {
	c := *n
	c.children = make(map[string]*Node, len(n.children))
	for name, child := range n.children {
		if child.IsDir() {
			child = cloneDir(child)
		}
		c.children[name] = child
	}
	return &c
}

// Root returns the folder /.
func (t *Tree) Root() *Node { return t.root }

// Resolve returns where a path leads, with links in its parents resolved; the last part
// is followed too if follow is set. Missing parts are taken literally. Nothing leads
// out of the tree.
func (t *Tree) Resolve(name string, follow bool) (string, error) {
	done, rest := "", Split(name)
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		if part == ".." {
			done = strings.TrimPrefix(path.Dir("/"+done), "/")
			continue
		}
		next := path.Join(done, part)
		n := t.at(next)
		if n == nil || !n.IsLink() || len(rest) == 0 && !follow {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: too many symbolic links", name)
		}
		if path.IsAbs(n.Target) {
			done = ""
		}
		rest = append(Split(n.Target), rest...)
	}
	return done, nil
}

// Split splits a path into its parts. Leading slashes and dots are ignored.
func Split(name string) []string {
	var parts []string
	for p := range strings.SplitSeq(name, "/") {
		if p != "" && p != "." {
			parts = append(parts, p)
		}
	}
	return parts
}

// at returns the node at a resolved path, or nil.
func (t *Tree) at(name string) *Node {
	n := t.root
	for _, p := range Split(name) {
		if n = n.children[p]; n == nil {
			return nil
		}
	}
	return n
}

// Get returns the node at a path, following a link in the last part. A missing one is
// fs.ErrNotExist.
func (t *Tree) Get(name string) (*Node, error) { return t.get(name, true) }

// Lget is Get without following the last part.
func (t *Tree) Lget(name string) (*Node, error) { return t.get(name, false) }

func (t *Tree) get(name string, follow bool) (*Node, error) {
	at, err := t.Resolve(name, follow)
	if err != nil {
		return nil, err
	}
	if n := t.at(at); n != nil {
		return n, nil
	}
	return nil, &fs.PathError{Op: "find", Path: "/" + strings.TrimPrefix(name, "/"), Err: fs.ErrNotExist}
}

// Put places a node at a resolved path, replacing what is there, and creates missing
// parent folders, owned by root.
func (t *Tree) Put(name string, n *Node) error {
	parts := Split(name)
	if len(parts) == 0 {
		if !n.IsDir() {
			return errors.New("/ must be a folder")
		}
		t.root = n
		return nil
	}
	dir, err := t.mkdirs(parts[:len(parts)-1], n.Time)
	if err != nil {
		return err
	}
	dir.children[parts[len(parts)-1]] = n
	return nil
}

// PutFolder places a folder at a resolved path, and keeps the content of an existing
// one.
func (t *Tree) PutFolder(name string, n *Node) error {
	if old := t.at(name); old != nil && old.IsDir() {
		n.children = old.children
	}
	return t.Put(name, n)
}

// Bare returns a copy that can be changed, without the content of a folder.
func (n *Node) Bare() *Node {
	c := *n
	if n.IsDir() {
		c.children = map[string]*Node{}
	}
	return &c
}

// Sub returns a tree with a folder as its root.
func Sub(n *Node) *Tree { return &Tree{cloneDir(n)} }

func (t *Tree) mkdirs(parts []string, at time.Time) (*Node, error) {
	dir := t.root
	for i, p := range parts {
		next := dir.children[p]
		if next == nil {
			next = newDir(at)
			dir.children[p] = next
		}
		if !next.IsDir() {
			return nil, &fs.PathError{Op: "enter", Path: "/" + path.Join(parts[:i+1]...), Err: unix.ENOTDIR}
		}
		dir = next
	}
	return dir, nil
}

// Mkdir creates a folder and its parents, and returns it. An existing one is unchanged.
func (t *Tree) Mkdir(name string, at time.Time) (*Node, error) {
	to, err := t.Resolve(name, true)
	if err != nil {
		return nil, err
	}
	return t.mkdirs(Split(to), at)
}

// Change calls f with a copy of the node at a path, and replaces it under all its names.
func (t *Tree) Change(name string, follow bool, f func(*Node)) error {
	old, err := t.get(name, follow)
	if err != nil {
		return err
	}
	if old.IsDir() { // folders are not shared between trees
		f(old)
		return nil
	}
	n := old.copy()
	f(n)
	replace(t.root, old, n)
	return nil
}

func replace(dir, old, n *Node) {
	for name, c := range dir.children {
		if c == old {
			dir.children[name] = n
		} else if c.IsDir() {
			replace(c, old, n)
		}
	}
}

// Remove deletes a path with everything below it, without following a link.
func (t *Tree) Remove(name string) error {
	at, err := t.Resolve(name, false)
	if err != nil {
		return err
	}
	parts := Split(at)
	if len(parts) == 0 {
		return errors.New("/ cannot be removed")
	}
	if dir := t.at(path.Join(parts[:len(parts)-1]...)); dir != nil {
		delete(dir.children, parts[len(parts)-1])
	}
	return nil
}

// Walk calls f for a node and everything below it, folders before their content, in the order
// of names. The path is relative to the node, and "" for the node itself.
func Walk(n *Node, f func(name string, n *Node) error) error { return walk("", n, f) }

func walk(name string, n *Node, f func(string, *Node) error) error {
	if err := f(name, n); err != nil {
		return err
	}
	for _, child := range n.Names() {
		if err := walk(path.Join(name, child), n.children[child], f); err != nil {
			return err
		}
	}
	return nil
}
