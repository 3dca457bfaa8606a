package store

import (
	"context"
	"time"
)

// Shared is what hosts that share a store have in common besides its records: the names of
// templates, and what of their files is known.
type Shared interface {
	// TemplateNames returns the names that have changed after a version, and the version of
	// the newest change of all.
	TemplateNames(ctx context.Context, after int64) ([]TemplateName, int64, error)
	// TemplateVersion is the version of the newest change.
	TemplateVersion(ctx context.Context) (int64, error)
	// NameTemplates records names, and what is known of their images, in one step. With
	// unchanged, those are left out whose version is not the one given, which is 0 for names
	// that the store has never heard of.
	NameTemplates(ctx context.Context, names []TemplateName, images []Tree, unchanged bool) error
	// Tree finds what is known of a tree; CodeNotFound where nothing is.
	Tree(ctx context.Context, kind, name string) (*Tree, error)
	// Trees lists those of a kind.
	Trees(ctx context.Context, kind string) ([]Tree, error)
	// PutTree records a tree, and that it is needed. Where another host has one of its name,
	// that is the one that all have, unless that host is dead or nothing needed it, and it is
	// not in the object storage.
	PutTree(ctx context.Context, t Tree) error
	// SetTreeStored says since when a tree is in the object storage; nil is that it is not.
	SetTreeStored(ctx context.Context, kind, name string, at *time.Time) error
	// SetTreeNeeded says whether something needs a tree. One that nothing needs keeps the time
	// since when that is so.
	SetTreeNeeded(ctx context.Context, kind, name string, needed bool) error
	// CondemnTree marks a tree of the object storage as one that is being removed from there,
	// where nothing has needed it since before a time, and reports whether it did.
	CondemnTree(ctx context.Context, kind, name string, before time.Time) (bool, error)
}

// Condemned reports whether a tree is being removed from the object storage.
func (t *Tree) Condemned() bool { return t.StoredAt != nil && t.StoredAt.Equal(Condemned) }

// Condemned is the time at which a tree is said to be stored that is being removed.
var Condemned = time.Unix(0, 0).UTC()

// TemplateName is a name of a template with one tag.
type TemplateName struct {
	// Project is empty where the template is for all.
	Project, Name, Tag string
	// Digest is that of the image, and empty where the name was removed.
	Digest string
	// Version is that of the last change.
	Version int64
	// Manifest is the template's.
	Manifest []byte
}

// Tree is a folder of files that hosts have of each other.
type Tree struct {
	// Kind is the kind of tree, and Name names one of it.
	Kind, Name string
	// Host is the one that has published it.
	Host  string
	Bytes int64
	At    time.Time
	// StoredAt is since when it is in the object storage, and UnneededAt since when nothing
	// needs it.
	StoredAt, UnneededAt *time.Time
	// Record says what its files are.
	Record []byte
}

// The kinds of trees.
const (
	TreeTemplates = "templates"
	TreeEngines   = "engines"
	TreeGoldens   = "goldens"
)
