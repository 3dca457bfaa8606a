package tmpfs

import (
	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// newDevice makes a device. All whiteouts of an overlay are one inode, whose names count for
// nothing: they are as many as there are files below at most. Programs may make as many as they
// like, so each of theirs is an inode of its own, as is any other file.
func (fs *filesystem) newDevice(creds *auth.Credentials, opts vfs.MknodOptions, parentDir *directory) (*inode, error) {
	uid, gid := creds.EffectiveKUID, creds.EffectiveKGID
	if !opts.ByProgram || !isOvlWhiteoutDev(opts.Mode, opts.DevMajor, opts.DevMinor) {
		return fs.newDeviceFileLocked(uid, gid, opts.Mode, opts.DevMajor, opts.DevMinor, parentDir)
	}
	file := &deviceFile{kind: vfs.CharDevice, major: opts.DevMajor, minor: opts.DevMinor}
	if err := file.inode.init(file, fs, uid, gid, opts.Mode, parentDir); err != nil {
		return nil, err
	}
	file.inode.nlink = atomicbitops.FromUint32(1) // from the parent directory
	return &file.inode, nil
}

// unaccountLink gives back what LinkAt took for a name of an inode that has others. As in
// Linux, each counts as an inode: its memory cannot be reclaimed either. Directories have no
// further names, and the names of an overlay's whiteouts took nothing.
func (i *inode) unaccountLink() {
	if _, ok := i.impl.(*directory); ok || i.fs.ovlWhiteout != nil && i == &i.fs.ovlWhiteout.inode {
		return
	}
	i.fs.unaccountInode()
}
