package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy/template/tree"
	"golang.org/x/sys/unix"
)

// copying is one COPY or ADD between two trees.
type copying struct {
	ctx      context.Context
	from, to *tree.Tree
	files    Files
	workdir  string
	// keepOwner keeps the owners of files unless --chown is given: for files of other stages.
	// Files of a context belong to root.
	keepOwner bool
	now       time.Time
	// unpack, if set, returns the content of an archive.
	unpack func(*tree.Node) (*tree.Tree, error)

	uid, gid uint32
	own      bool // uid and gid are set
	mode     *uint32
	known    map[*tree.Node]*tree.Node
}

func (c *copying) run() error {
	c.known = map[*tree.Node]*tree.Node{}
	if err := c.options(); err != nil {
		return err
	}
	dest := c.files.Dest
	if !path.IsAbs(dest) {
		dest = path.Join("/", c.workdir, dest) + strings.Repeat("/", boolInt(strings.HasSuffix(dest, "/") || dest == "." || dest == "./"))
	}
	sources, err := c.files.from(c.ctx, c.from)
	if err != nil {
		return err
	}
	if len(sources)+len(c.files.Inline) > 1 && !strings.HasSuffix(dest, "/") {
		return fmt.Errorf("with several sources the destination must end with a slash, which %s does not", c.files.Dest)
	}
	for _, src := range sources {
		if err := c.one(src, dest); err != nil {
			return err
		}
	}
	for _, f := range c.files.Inline {
		n := &tree.Node{Mode: unix.S_IFREG | 0o644, Time: c.now, Data: tree.Text(f.Data)}
		if err := c.file(n, dest, f.Name); err != nil {
			return err
		}
	}
	return nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// options parses --chown and --chmod.
func (c *copying) options() error {
	if c.files.Chown != "" {
		u, err := lookup(c.to, c.files.Chown)
		if err != nil {
			return err
		}
		c.uid, c.gid, c.own = u.uid, u.gid, true
	} else if !c.keepOwner {
		c.own = true
	}
	if c.files.Chmod != "" {
		m, err := strconv.ParseUint(c.files.Chmod, 8, 32)
		if err != nil || m > 0o7777 {
			return fmt.Errorf("--chmod=%s is not a mode in octal digits, such as 0644", c.files.Chmod)
		}
		mode := uint32(m)
		c.mode = &mode
	}
	return nil
}

// source is what is copied: a file, or the content of a folder.
type source struct {
	name string
	node *tree.Node
}

// from returns what the sources name in a tree, without what is excluded.
func (f *Files) from(ctx context.Context, t *tree.Tree) ([]source, error) {
	var list []source
	for _, pattern := range f.Sources {
		if f.Parents {
			one, err := f.withParents(ctx, t, pattern)
			if err != nil {
				return nil, err
			}
			list = append(list, one)
			continue
		}
		found, err := match(ctx, t, pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range found {
			n, err := t.Get(name)
			if err != nil {
				return nil, fmt.Errorf("%q: not found", "/"+name)
			}
			if n, err = f.without(ctx, n, path.Base(name)); err != nil {
				return nil, err
			}
			if n != nil {
				list = append(list, source{name, n})
			}
		}
	}
	return list, nil
}

// without returns a source without what is excluded, or nil if that is all of it. The patterns are
// those of names in a folder, or of the file.
func (f *Files) without(ctx context.Context, n *tree.Node, name string) (*tree.Node, error) {
	if len(f.Exclude) == 0 {
		return n, nil
	}
	t := tree.New(epoch)
	if n.IsDir() {
		t = tree.Sub(n)
	} else if err := t.Put(name, n); err != nil {
		return nil, err
	}
	if err := without(ctx, t, f.Exclude, len(f.Sources)); err != nil {
		return nil, fmt.Errorf("--exclude: %w", err)
	}
	if n.IsDir() {
		return t.Root(), nil
	}
	return t.Root().Child(name), nil
}

// withParents returns a folder with only what matches a source, and the folders on the way to it.
// They begin at the root or, if the source contains /./, there.
func (f *Files) withParents(ctx context.Context, t *tree.Tree, pattern string) (source, error) {
	top, rest, ok := strings.Cut(pattern, "/./")
	if !ok {
		top, rest = "/", pattern
	}
	rest = strings.TrimPrefix(path.Join("/", rest), "/")
	n, err := t.Get(top)
	if err != nil || !n.IsDir() {
		return source{}, fmt.Errorf("%q: not found", path.Join("/", top))
	}
	found := tree.Sub(n)
	if !strings.ContainsAny(rest, wildcards) {
		if _, err := found.Get(rest); err != nil {
			return source{}, fmt.Errorf("%q: not found", path.Join("/", top, rest))
		}
	}
	if rest != "" {
		if err := without(ctx, found, []string{"**", "!" + rest}, len(f.Sources)); err != nil {
			return source{}, fmt.Errorf("%s: %w", pattern, err)
		}
	}
	n, err = f.without(ctx, found.Root(), "")
	return source{top, n}, err
}

const wildcards = `*?[\`

// match returns the paths that match a source. One without wildcards must exist.
func match(ctx context.Context, from *tree.Tree, pattern string) ([]string, error) {
	clean := strings.TrimPrefix(path.Join("/", pattern), "/")
	if !strings.ContainsAny(clean, wildcards) {
		if _, err := from.Get(clean); err != nil {
			return nil, fmt.Errorf("%q: not found", "/"+clean)
		}
		return []string{clean}, nil
	}
	if _, err := path.Match(clean, ""); err != nil {
		return nil, fmt.Errorf("%s: %w", pattern, err)
	}
	var found []string
	depth := strings.Count(clean, "/")
	err := tree.Walk(from.Root(), func(name string, _ *tree.Node) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if ok, _ := path.Match(clean, name); ok && strings.Count(name, "/") == depth && name != "" {
			found = append(found, name)
		}
		return nil
	})
	return found, err
}

// one copies a source: the content of a folder, or a file.
func (c *copying) one(s source, dest string) error {
	src, n := s.name, s.node
	if c.unpack != nil && n.IsFile() {
		content, err := c.unpack(n)
		if err != nil {
			return fmt.Errorf("%s: %w", src, err)
		}
		if content != nil {
			keep := *c
			keep.keepOwner, keep.own = true, c.files.Chown != ""
			return keep.folder(content.Root(), dest)
		}
	}
	if n.IsDir() {
		return c.folder(n, dest)
	}
	return c.file(n, dest, path.Base(src))
}

// folder merges the content of a folder into one of the destination.
func (c *copying) folder(n *tree.Node, dest string) error {
	to, err := c.to.Resolve(dest, true)
	if err != nil {
		return err
	}
	if old, err := c.to.Lget(to); err == nil && !old.IsDir() {
		return fmt.Errorf("%s exists and is not a folder", dest)
	} else if errors.Is(err, fs.ErrNotExist) {
		// The folder itself is a new one, even if the source has another mode.
		if err := c.parents("/" + to); err != nil {
			return err
		}
	}
	changed, err := c.merge(n, to)
	if changed {
		c.touch(to)
	}
	return err
}

// touch gives a folder in which a name has been made the time of now.
func (c *copying) touch(dir string) {
	if n, err := c.to.Lget(dir); err == nil && n.IsDir() {
		n.Time = c.now // folders are not shared with other trees
	}
}

// merge reports whether it has made a name in the folder.
func (c *copying) merge(n *tree.Node, to string) (changed bool, err error) {
	for _, name := range n.Names() {
		if c.ctx.Err() != nil {
			return changed, context.Cause(c.ctx)
		}
		child, at := n.Child(name), path.Join(to, name)
		old, err := c.to.Lget(at)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return changed, err
		}
		changed = changed || old == nil || !child.IsDir()
		if !child.IsDir() {
			if old != nil && old.IsDir() {
				return changed, fmt.Errorf("cannot copy a file over the folder /%s", at)
			}
			if err := c.to.Put(at, c.dress(child)); err != nil {
				return changed, err
			}
			continue
		}
		if old != nil && !old.IsDir() {
			return changed, fmt.Errorf("cannot copy a folder over /%s, which is not a folder", at)
		}
		if err := c.to.PutFolder(at, c.dress(child)); err != nil {
			return changed, err
		}
		if _, err := c.merge(child, at); err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// file copies a file to a destination, or into it if that is a folder.
func (c *copying) file(n *tree.Node, dest, name string) error {
	to, err := c.to.Resolve(dest, true)
	if err != nil {
		return err
	}
	old, err := c.to.Lget(to)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if old != nil && old.IsDir() || strings.HasSuffix(dest, "/") {
		if old != nil && !old.IsDir() {
			return fmt.Errorf("%s exists and is not a folder", dest)
		}
		if to, err = c.to.Resolve(path.Join(to, name), true); err != nil {
			return err
		}
		if old, err := c.to.Lget(to); err == nil && old.IsDir() {
			return fmt.Errorf("/%s is a folder, and a file is to be copied there", to)
		}
	}
	if err := c.parents(path.Dir("/" + to)); err != nil {
		return err
	}
	if err := c.to.Put(to, c.dress(n)); err != nil {
		return err
	}
	c.touch(path.Dir(to))
	return nil
}

// parents creates the folders above a destination.
func (c *copying) parents(dir string) error {
	for p := ""; ; {
		rest := strings.TrimPrefix(strings.TrimPrefix(dir, p), "/")
		if rest == "" {
			return nil
		}
		next, _, _ := strings.Cut(rest, "/")
		p = path.Join("/", p, next)
		old, err := c.to.Lget(p)
		if err == nil && !old.IsDir() {
			return fmt.Errorf("%s is not a folder", p)
		}
		if err == nil {
			continue
		}
		n, err := c.to.Mkdir(p, c.now)
		if err != nil {
			return err
		}
		c.touch(path.Dir(p))
		if c.files.Chown != "" {
			n.UID, n.GID = c.uid, c.gid
		}
	}
}

// dress returns a copy of a node with the owner and mode of --chown and --chmod. Hard links are
// preserved.
func (c *copying) dress(n *tree.Node) *tree.Node {
	if d := c.known[n]; d != nil && !n.IsDir() {
		return d
	}
	d := n.Bare()
	if c.own {
		d.UID, d.GID = c.uid, c.gid
	}
	if c.mode != nil && !n.IsLink() {
		d.Mode = d.Mode&unix.S_IFMT | *c.mode
	}
	c.known[n] = d
	return d
}

// account is the user of a USER or --chown.
type account struct{ uid, gid uint32 }

// lookup resolves a user, "name", "name:group", or numbers in their place, with the account
// files of a tree. A number without a group is also the group.
func lookup(t *tree.Tree, spec string) (account, error) {
	name, group, hasGroup := strings.Cut(spec, ":")
	var a account
	fields := find(t, "/etc/passwd", name, 4)
	id, err := strconv.ParseUint(name, 10, 32)
	switch {
	case fields != nil:
		u, err1 := strconv.ParseUint(fields[2], 10, 32)
		g, err2 := strconv.ParseUint(fields[3], 10, 32)
		if err := cmp.Or(err1, err2); err != nil {
			return a, fmt.Errorf("the user %s has no valid number in /etc/passwd: %w", name, err)
		}
		a = account{uint32(u), uint32(g)}
	case err == nil:
		a = account{uint32(id), uint32(id)}
	case name == "root":
	default:
		return a, fmt.Errorf("there is no user %s in /etc/passwd", name)
	}
	if !hasGroup {
		return a, nil
	}
	if f := find(t, "/etc/group", group, 3); f != nil {
		group = f[2]
	}
	g, err := strconv.ParseUint(group, 10, 32)
	if err != nil {
		if group == "root" {
			g = 0
		} else {
			return a, fmt.Errorf("there is no group %s in /etc/group", group)
		}
	}
	a.gid = uint32(g)
	return a, nil
}

const maxAccounts = 4 << 20

// find returns the fields of an account.
func find(t *tree.Tree, file, name string, fields int) []string {
	n, err := t.Get(file)
	if err != nil || !n.IsFile() {
		return nil
	}
	text, err := n.Data.Read(maxAccounts)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) >= fields && f[0] == name && name != "" {
			return f
		}
	}
	return nil
}
