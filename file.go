package bothy

import (
	"context"
	"io"
	"time"
)

// FileType is the kind of a file system entry.
type FileType string

// The kinds of entries.
const (
	FileRegular   FileType = "file"
	FileDirectory FileType = "directory"
	FileSymlink   FileType = "symlink"
	FileOther     FileType = "other"
)

// FileInfo describes one entry of a sandbox's file system.
type FileInfo struct {
	Name       string    `json:"name"`
	Path       string    `json:"path"`
	Type       FileType  `json:"type"`
	Size       int64     `json:"size"`
	Mode       string    `json:"mode"`
	UID        int       `json:"uid"`
	GID        int       `json:"gid"`
	Owner      string    `json:"owner,omitempty"`
	Group      string    `json:"group,omitempty"`
	ModifiedAt time.Time `json:"modified_at"`
	LinkTarget string    `json:"link_target,omitempty"`
}

// WriteOptions are the attributes of a file that is written.
type WriteOptions struct {
	// Mode is the permission bits. Zero keeps those of the file that is there,
	// and means 0644 for a new one.
	Mode uint32
	// User owns the file; DefaultUser when empty.
	User string
	// ModifiedAt is kept when set.
	ModifiedAt time.Time
	// Atomic replaces the file that is there by a new one of the user's in one
	// step. Otherwise that file keeps its owner, its mode and its other names
	// (hard links), and must be one that the user may write.
	Atomic bool
	// Size is how many bytes there will be, or 0 when that is not known. To know it
	// makes large files faster.
	Size int64
}

// FileEvent is one change under a watched folder.
type FileEvent struct {
	Type string `json:"type"` // create, write, remove, rename, chmod
	Path string `json:"path"`
	Name string `json:"name"`
}

// FileService moves files in and out of sandboxes. Relative paths start at
// DefaultCwd. Sizes are not bounded other than by the sandbox's disk.
type FileService interface {
	// Read opens a file. The caller closes it. The size comes with the info.
	Read(ctx context.Context, id, path, user string) (io.ReadCloser, *FileInfo, error)
	// Write stores r's bytes in a temporary file and renames it to path, making the
	// folders above. A writer that breaks off changes nothing. A reader never
	// sees half a file, unless the file that is there is somebody else's or has
	// several names and is therefore written over.
	Write(ctx context.Context, id, path string, r io.Reader, o WriteOptions) (*FileInfo, error)
	// List returns the entries of a folder, depth levels deep (1 for its own
	// entries only).
	List(ctx context.Context, id, path, user string, depth int) ([]FileInfo, error)
	Stat(ctx context.Context, id, path, user string) (*FileInfo, error)
	Mkdir(ctx context.Context, id, path, user string) (*FileInfo, error)
	Move(ctx context.Context, id, from, to, user string) (*FileInfo, error)
	// Remove deletes a file, or a folder with all that is in it.
	Remove(ctx context.Context, id, path, user string) error
	// Watch calls fn for every change under path until ctx ends.
	Watch(ctx context.Context, id, path, user string, recursive bool, fn func(FileEvent) error) error
	// ReadArchive streams path as a tar, in which files with several names are
	// hard links. The caller closes it.
	ReadArchive(ctx context.Context, id, path, user string, o ArchiveOptions) (io.ReadCloser, error)
	// WriteArchive unpacks a tar, which may be compressed with gzip, below path.
	WriteArchive(ctx context.Context, id, path, user string, r io.Reader) error
}
