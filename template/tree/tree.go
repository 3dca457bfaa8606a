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

	"github.com/bothy-dev/bothy/internal/bounded"
)

const (
	// maxLinks limits the symbolic links on the way to one file, as Linux does, and maxSteps
	// the names, including those in the links.
	maxLinks, maxSteps = 40, 1024
	// MaxFiles limits the names in a tree, and the entries of a layer.
	MaxFiles = 1_000_000
	// maxText limits the text of all nodes: names, targets, attributes, and content in memory.
	maxText = 256 << 20
)

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
type Tree struct {
	root   *Node
	size   size  // of everything below the root
	made   int64 // folders that were created because they were missing
	memory account
}

// New returns an empty tree.
func New(at time.Time) *Tree { return &Tree{root: newDir(at)} }

// size is how much a part of a tree has of what is limited.
type size struct{ files, text int64 }

func (s size) plus(o size) size  { return size{s.files + o.files, s.text + o.text} }
func (s size) minus(o size) size { return size{s.files - o.files, s.text - o.text} }

// entry is the size of a name of a node, without what is below it.
func (n *Node) entry(name string) size {
	s := size{1, int64(len(name) + len(n.Target) + len(n.Data.Text))}
	for k, v := range n.Xattrs {
		s.text += int64(len(k) + len(v))
	}
	return s
}

// below is the size of what is below a node.
func (n *Node) below() (s size) {
	for name, c := range n.children {
		s = s.plus(c.entry(name)).plus(c.below())
	}
	return s
}

// resize changes the tree's size, and fails if it has grown beyond a limit.
func (t *Tree) resize(now size) error {
	before := t.size
	t.size = now
	if now.files > MaxFiles && now.files > before.files {
		return &bounded.Error{Limit: MaxFiles, What: "files"}
	}
	if now.text > maxText && now.text > before.text {
		return &bounded.Error{Limit: maxText, What: "bytes of names, links and attributes"}
	}
	return nil
}

func newDir(at time.Time) *Node {
	return &Node{Mode: unix.S_IFDIR | 0o755, Time: at.Truncate(time.Second), children: map[string]*Node{}}
}

// Clone returns a copy that can be changed. It shares files, but not folders, with t.
func (t *Tree) Clone() *Tree {
	return &Tree{root: cloneDir(t.root), size: t.size, memory: t.memory.clone(t.size.files)}
}

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
	w, err := t.way(name, follow)
	return strings.Join(w.names, "/"), err
}

// way is where a path leads: names, each with its node, which is nil for a missing one.
type way struct {
	names []string
	nodes []*Node
}

func (w *way) last(root *Node) *Node {
	if len(w.nodes) == 0 {
		return root
	}
	return w.nodes[len(w.nodes)-1]
}

func (w *way) cut(n int) { w.names, w.nodes = w.names[:n], w.nodes[:n] }

func (t *Tree) way(name string, follow bool) (w way, err error) {
	if len(name) > bounded.MaxPath {
		return w, pathError(name, &bounded.Error{Limit: bounded.MaxPath, What: "bytes in a path"})
	}
	rest := Split(name)
	for links, steps := 0, 0; len(rest) > 0; steps++ {
		if steps == maxSteps {
			return way{}, pathError(name, &bounded.Error{Limit: maxSteps, What: "names in a path and its links"})
		}
		part := rest[0]
		rest = rest[1:]
		if part == ".." {
			w.cut(max(len(w.names)-1, 0))
			continue
		}
		var n *Node
		if dir := w.last(t.root); dir != nil {
			n = dir.children[part]
		}
		if n == nil || !n.IsLink() || len(rest) == 0 && !follow {
			w.names, w.nodes = append(w.names, part), append(w.nodes, n)
			continue
		}
		if links++; links > maxLinks {
			return way{}, fmt.Errorf("%s: too many symbolic links", bounded.Short(name))
		}
		if path.IsAbs(n.Target) {
			w.cut(0)
		}
		rest = append(Split(n.Target), rest...)
	}
	return w, nil
}

func pathError(name string, err error) error {
	return fmt.Errorf("%s: %w", bounded.Short(name), err)
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
	w, err := t.way(name, follow)
	if err != nil {
		return nil, err
	}
	if n := w.last(t.root); n != nil {
		return n, nil
	}
	return nil, &fs.PathError{Op: "find", Path: "/" + strings.TrimPrefix(name, "/"), Err: fs.ErrNotExist}
}

// Put places a node at a resolved path, replacing what is there, and creates missing
// parent folders, owned by root.
func (t *Tree) Put(name string, n *Node) error { return t.put(name, n, false) }

// PutFolder places a folder at a resolved path, and keeps the content of an existing
// one.
func (t *Tree) PutFolder(name string, n *Node) error { return t.put(name, n, true) }

func (t *Tree) put(name string, n *Node, keep bool) error {
	if err := bounded.CheckPath(name); err != nil {
		return pathError(name, err)
	}
	parts := Split(name)
	if len(parts) == 0 {
		return t.setRoot(n, keep)
	}
	dir, err := t.mkdirs(parts[:len(parts)-1], n.Time)
	if err != nil {
		return err
	}
	last := strings.Clone(parts[len(parts)-1]) // keeps no longer path in memory
	now, old := t.size.plus(n.entry(last)), dir.children[last]
	if old != nil {
		now = now.minus(old.entry(last))
	}
	if keep && old != nil && old.IsDir() {
		n.children = old.children
	} else {
		now = now.plus(n.below())
		if old != nil {
			now = now.minus(old.below())
		}
	}
	if err := t.resize(now); err != nil {
		return pathError(name, err)
	}
	dir.children[last] = n
	return nil
}

func (t *Tree) setRoot(n *Node, keep bool) error {
	if !n.IsDir() {
		return errors.New("/ must be a folder")
	}
	if keep {
		n.children = t.root.children
	} else if err := t.resize(n.below()); err != nil {
		return err
	}
	t.root = n
	return nil
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
func Sub(n *Node) *Tree { return &Tree{root: cloneDir(n), size: n.below()} }

func (t *Tree) mkdirs(parts []string, at time.Time) (*Node, error) {
	dir := t.root
	for i, p := range parts {
		next := dir.children[p]
		if next == nil {
			next = newDir(at)
			p = strings.Clone(p)
			if err := t.resize(t.size.plus(next.entry(p))); err != nil {
				return nil, pathError(path.Join(parts...), err)
			}
			t.made++
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
	w, err := t.way(name, true)
	if err == nil {
		err = bounded.CheckPath(strings.Join(w.names, "/"))
	}
	if err != nil {
		return nil, err
	}
	return t.mkdirs(w.names, at)
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
	t.replace(map[*Node]*Node{old: changed(old, f)})
	return nil
}

// ChangeAll is Change for a path and everything below it.
func (t *Tree) ChangeAll(name string, f func(*Node)) error {
	top, err := t.get(name, true)
	if err != nil {
		return err
	}
	made := map[*Node]*Node{}
	err = Walk(top, func(_ string, n *Node) error {
		if n.IsDir() {
			f(n)
		} else if made[n] == nil {
			made[n] = changed(n, f)
		}
		return nil
	})
	t.replace(made)
	return err
}

func changed(n *Node, f func(*Node)) *Node {
	c := n.copy()
	f(c)
	return c
}

// replace puts other nodes in the place of some files, under all their names.
func (t *Tree) replace(made map[*Node]*Node) {
	if len(made) > 0 {
		replaceIn(t.root, made)
	}
}

func replaceIn(dir *Node, made map[*Node]*Node) {
	if onReplace != nil {
		onReplace()
	}
	for name, c := range dir.children {
		if n := made[c]; n != nil {
			dir.children[name] = n
		} else if c.IsDir() {
			replaceIn(c, made)
		}
	}
}

// onReplace is called for each folder that is searched. Tests set it.
var onReplace func()

// Remove deletes a path with everything below it, without following a link.
func (t *Tree) Remove(name string) error {
	w, err := t.way(name, false)
	if err != nil {
		return err
	}
	if len(w.names) == 0 {
		return errors.New("/ cannot be removed")
	}
	last := w.names[len(w.names)-1]
	w.cut(len(w.names) - 1)
	if dir := w.last(t.root); dir != nil {
		t.drop(dir, last)
	}
	return nil
}

// drop removes a name from a folder.
func (t *Tree) drop(dir *Node, name string) {
	if n := dir.children[name]; n != nil {
		t.size = t.size.minus(n.entry(name)).minus(n.below())
		delete(dir.children, name)
	}
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
