package tmpfs

// unaccountLink gives back what LinkAt took for a name of an inode that has others. As in
// Linux, each counts as an inode: its memory cannot be reclaimed either. Directories have no
// further names, and whiteouts are as many as there are files below at most.
func (i *inode) unaccountLink() {
	if _, ok := i.impl.(*directory); ok || i.fs.ovlWhiteout != nil && i == &i.fs.ovlWhiteout.inode {
		return
	}
	i.fs.unaccountInode()
}
