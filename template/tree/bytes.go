package tree

// Bytes is how large the files of the tree are together. One with several names counts once.
func (t *Tree) Bytes() (sum int64) {
	seen := map[*Node]bool{}
	_ = Walk(t.root, func(_ string, n *Node) error {
		if n.IsFile() && !seen[n] {
			seen[n] = true
			sum += n.Data.Size
		}
		return nil
	})
	return sum
}
