package overlay

import (
	"slices"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// withInodes returns dirents with the inode numbers that stat(2) shows: a directory's is the
// overlay's own, and a file that was copied up has another than it had. Like Linux's
// ovl_cache_update_ino(), it looks directories up, once for a list of dirents.
//
// Preconditions:
//   - d.fs.renameMu must be locked.
//   - d.dirMu must be locked.
func (d *dentry) withInodes(ctx context.Context, dirents []vfs.Dirent, lookUp bool, ds **[]*dentry) []vfs.Dirent {
	own := false
	for i, e := range dirents {
		if i < 2 { // . and ..
			continue
		}
		child, ok := d.children[e.Name]
		if !ok && lookUp && e.Type == linux.DT_DIR {
			var err error
			child, _, err = d.fs.getChildLocked(ctx, d, e.Name, ds)
			ok = err == nil
		}
		if !ok {
			continue
		}
		if ino := child.ino.Load(); ino != e.Ino {
			if !own { // descriptors read the list that they have
				dirents, own = slices.Clone(dirents), true
			}
			dirents[i].Ino = ino
		}
	}
	d.dirents = dirents
	return dirents
}
