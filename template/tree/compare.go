package tree

import (
	"context"
	"maps"
	"path"
	"slices"
)

// A Change is a path at which two trees differ. Old is nil for an addition, New for a removal.
type Change struct {
	Path     string
	Old, New *Node
}

// Compare calls tell for each path at which t differs from old, in order, until it
// returns false. A file that differs only in its times counts as the same, and so does
// a folder with the same permissions and owner: its entries are compared separately.
func (t *Tree) Compare(ctx context.Context, old *Tree, tell func(Change) bool) error {
	c := &comparison{ctx: ctx, tell: tell, from: sources{}}
	defer c.from.Close()
	_, err := c.dir("/", t.root, old.root)
	return err
}

type comparison struct {
	ctx  context.Context
	tell func(Change) bool
	from sources
}

// dir reports whether to continue.
func (c *comparison) dir(name string, n, old *Node) (bool, error) {
	names := map[string]bool{}
	for _, d := range []*Node{n, old} {
		if d != nil {
			for child := range d.children {
				names[child] = true
			}
		}
	}
	for _, child := range slices.Sorted(maps.Keys(names)) {
		if err := c.ctx.Err(); err != nil {
			return false, err
		}
		if on, err := c.node(path.Join(name, child), n.childOrNone(child), old.childOrNone(child)); !on || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (n *Node) childOrNone(name string) *Node {
	if n == nil {
		return nil
	}
	return n.children[name]
}

func (c *comparison) node(name string, n, old *Node) (bool, error) {
	if n == old {
		if n != nil && !n.IsDir() {
			return true, nil
		}
	} else if same, err := c.same(n, old); err != nil {
		return false, err
	} else if !same && !c.tell(Change{name, old, n}) {
		return false, nil
	}
	inside := func(n *Node) *Node {
		if n != nil && n.IsDir() {
			return n
		}
		return nil
	}
	return c.dir(name, inside(n), inside(old))
}

func (c *comparison) same(n, old *Node) (bool, error) {
	switch {
	case n == nil || old == nil:
		return false, nil
	case n.IsDir():
		return n.owned(old), nil
	case !n.alike(old):
		return false, nil
	case !n.IsFile():
		return true, nil
	}
	return c.from.same(c.ctx, n.Data, old.Data)
}
