package tmpfs

// sharesWhiteouts says whether all whiteouts are one inode, whose names count for nothing: in
// the layer that an overlay keeps in a file of its own. Nobody but the overlay makes any there,
// and they are as many as there are files below at most. Elsewhere whoever likes may make them,
// and each counts as any other file.
func (fs *filesystem) sharesWhiteouts() bool { return fs.mf.ResourceID().Ok() }

// unaccountLink gives back what LinkAt took for a name of an inode that has others. As in
// Linux, each counts as an inode: its memory cannot be reclaimed either. Directories have no
// further names.
func (i *inode) unaccountLink() {
	if _, ok := i.impl.(*directory); ok || i.fs.ovlWhiteout != nil && i == &i.fs.ovlWhiteout.inode {
		return
	}
	i.fs.unaccountInode()
}
