package tree

import "time"

// NoLater clamps all times to a maximum.
func (t *Tree) NoLater(at time.Time) {
	at = at.Truncate(time.Second)
	older := map[*Node]*Node{} // preserves hard links
	var visit func(n *Node)
	visit = func(n *Node) {
		if n.Time.After(at) {
			n.Time = at // folders are not shared with other trees
		}
		for name, child := range n.children {
			if child.IsDir() {
				visit(child)
				continue
			}
			if !child.Time.After(at) {
				continue
			}
			if older[child] == nil {
				older[child] = child.copy()
				older[child].Time = at
			}
			n.children[name] = older[child]
		}
	}
	visit(t.root)
}
