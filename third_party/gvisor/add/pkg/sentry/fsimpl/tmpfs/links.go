package tmpfs

import (
	"gvisor.dev/gvisor/pkg/atomicbitops"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// newDevice makes a device. All whiteouts of an overlay share one inode, and their names are not
// counted: there are at most as many as files in the lower layer. Devices that programs make are
// unlimited otherwise, so each has its own inode, as any other file has.
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

// unaccountLink releases what LinkAt accounted for a further name of an inode. As in Linux, each
// counts as an inode, since its memory cannot be reclaimed either. Directories have no further
// names, and those of an overlay's whiteouts are not accounted.
func (i *inode) unaccountLink() {
	if _, ok := i.impl.(*directory); ok || i.fs.ovlWhiteout != nil && i == &i.fs.ovlWhiteout.inode {
		return
	}
	i.fs.unaccountInode()
}
