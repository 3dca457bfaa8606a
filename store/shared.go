package store

import (
	"context"
	"time"
)

// Shared is what hosts of a cluster share besides records: the names of templates, and where
// the files of trees are.
type Shared interface {
	// TemplateNames returns the names changed after a version, and the newest version.
	TemplateNames(ctx context.Context, after int64) ([]TemplateName, int64, error)
	// TemplateVersion is the version of the newest change.
	TemplateVersion(ctx context.Context) (int64, error)
	// NameTemplates records names and their images in one step.
	NameTemplates(ctx context.Context, names []TemplateName, images []Tree, how Naming) error
	// Tree finds a tree; CodeNotFound if it is unknown.
	Tree(ctx context.Context, kind, name string) (*Tree, error)
	// Trees lists the trees of a kind.
	Trees(ctx context.Context, kind string) ([]Tree, error)
	// PutTree records a tree, and that it is needed. If another host has already recorded one
	// with this name, that one stays, unless its host is dead or nothing needs it, and it is
	// not in the object storage.
	PutTree(ctx context.Context, t Tree) error
	// SetTreeStored records since when a tree is in the object storage; nil means that it is
	// not.
	SetTreeStored(ctx context.Context, kind, name string, at *time.Time) error
	// SetTreeNeeded records whether a tree is needed. An unneeded one keeps the time since when
	// it is unneeded.
	SetTreeNeeded(ctx context.Context, kind, name string, needed bool) error
	// MarkTreeDeleting marks a tree as being deleted from the object storage if it has been unneeded
	// since before a time, and reports whether it did.
	MarkTreeDeleting(ctx context.Context, kind, name string, before time.Time) (bool, error)
}

// TreeDeleting reports whether a tree is being deleted from the object storage.
func (t *Tree) Deleting() bool { return t.StoredAt != nil && t.StoredAt.Equal(TreeDeleting) }

// TreeDeleting is the value of StoredAt for a tree that is being deleted.
var TreeDeleting = time.Unix(0, 0).UTC()

// Naming says how names are recorded.
type Naming struct {
	// Unchanged skips names whose current version differs from the given one, which is 0 for
	// unknown names.
	Unchanged bool
	// Quota bounds the bytes of all images that names of the project lead to, on all hosts,
	// with the new ones; 0 is no bound. Beyond it nothing is recorded, and the error is an
	// *OverQuota.
	Quota int64
}

// TemplateName is the name of a template with one tag.
type TemplateName struct {
	// Project is empty for a public template.
	Project, Name, Tag string
	// Digest is the digest of the image, empty if the name was removed.
	Digest string
	// Version is the version of the last change.
	Version int64
	// Manifest is the template's manifest.
	Manifest []byte
}

// Tree is a folder of files that hosts share.
type Tree struct {
	// Kind is the kind of tree, and Name names one of it.
	Kind, Name string
	// Host is the host that published it.
	Host  string
	Bytes int64
	At    time.Time
	// StoredAt is since when it is in the object storage, and UnneededAt since when nothing
	// needs it.
	StoredAt, UnneededAt *time.Time
	// Record describes its files.
	Record []byte
}

// The kinds of trees.
const (
	TreeTemplates = "templates"
	TreeEngines   = "engines"
)
