package bothy

import (
	"context"
	"io"
	"net/url"
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
	// Mode is the permission bits. Zero keeps those of an existing file, and
	// means 0644 for a new one.
	Mode uint32
	// User owns the file; DefaultUser when empty.
	User string
	// ModifiedAt is kept when set.
	ModifiedAt time.Time
	// Atomic replaces an existing file with a new one owned by the user, in one
	// step. Otherwise the file is written in place, as by an editor, once all of
	// the content has arrived: it keeps its owner, mode and other names (hard
	// links), the user must be allowed to write it, and a reader may for a moment
	// see old and new content mixed. A new file can be seen before it is complete.
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
	// Write stores r's bytes in a temporary file and renames it to path, creating
	// the folders above. If r fails, nothing changes. A reader never sees half a
	// file, unless an existing file has another owner or several names and is
	// therefore overwritten in place.
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

// ArchiveOptions say how a folder is packed.
type ArchiveOptions struct {
	// Gzip compresses the tar.
	Gzip bool
	// Exclude names what is left out, as a .gitignore does, without negation:
	// "node_modules" and "*.log" at any depth, "/build" and "src/gen" relative
	// to the folder, "cache/" only folders, "src/**/test" with any folders
	// between.
	Exclude []string
}

// SetQuery writes the options as they are in a request.
func (o ArchiveOptions) SetQuery(q url.Values) {
	if o.Gzip {
		q.Set("gzip", "true")
	}
	for _, pattern := range o.Exclude {
		q.Add("exclude", pattern)
	}
}

// ContentType names the kind of archive.
func (o ArchiveOptions) ContentType() string {
	if o.Gzip {
		return "application/gzip"
	}
	return "application/x-tar"
}
