package tree

// EROFS, as https://docs.kernel.org/filesystems/erofs.html describes it, as far as the
// images go that mkfs.erofs makes without compression, and that this package does.
const (
	blockSize   = 4096
	blockBits   = 12
	superOffset = 1024
	superMagic  = 0xE0F5E1E2
	slotSize    = 32
	compactSize = 32
	inodeSize   = 64 // of an extended one
	direntSize  = 12
	layoutPlain = 0
	layoutTail  = 2 // the last part of the content follows the inode
	noBlock     = 0xffffffff
)

// superblock is the form on disk.
type superblock struct {
	Magic, Checksum, FeatureCompat uint32
	BlockBits, ExtraSlots          uint8
	RootNID                        uint16
	Inodes, BuildTime              uint64
	BuildTimeNsec, Blocks          uint32
	MetaBlock, XattrBlock          uint32
	UUID, VolumeName               [16]byte
	FeatureIncompat                uint32
	Rest                           [44]byte
}

// compactInode and extendedInode are the forms on disk.
type compactInode struct {
	Format, XattrCount, Mode, Links uint16
	Size, Reserved, Block, Inode    uint32
	UID, GID                        uint16
	Reserved2                       uint32
}

type extendedInode struct {
	Format, XattrCount, Mode, Reserved uint16
	Size                               uint64
	Block, Inode, UID, GID             uint32
	Time                               uint64
	TimeNsec, Links                    uint32
	Reserved2                          [16]byte
}

// The numbers of the names of access control lists.
const (
	aclAccess  = 2
	aclDefault = 3
)

// xattrNames are the beginnings of names that are numbers on disk.
var xattrNames = map[uint8]string{
	1: "user.", aclAccess: "system.posix_acl_access", aclDefault: "system.posix_acl_default", 4: "trusted.", 6: "security.",
}
