package tree

// EROFS, as described at https://docs.kernel.org/filesystems/erofs.html, limited to what
// mkfs.erofs writes without compression, and what this package writes.
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
)

// superblock is the on-disk format.
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

// compactInode and extendedInode are the on-disk formats.
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

// xattrNames are the name prefixes that are stored as numbers.
var xattrNames = map[uint8]string{
	1: "user.", aclAccess: "system.posix_acl_access", aclDefault: "system.posix_acl_default", 4: "trusted.", 6: "security.",
}
