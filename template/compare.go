package template

import (
	"context"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/template/apart"
	filetree "github.com/bothy-dev/bothy/template/tree"
)

// Compare lists at most limit paths whose files differ between since and now.
func (l *Library) Compare(ctx context.Context, sinceBase *store.Template, since string, nowBase *store.Template, now string, limit int) (*bothy.SnapshotChanges, error) {
	base, err := filetree.Read(ctx, sinceBase.RootFS)
	if err != nil {
		return nil, err
	}
	trees := [2]*filetree.Tree{base.Clone(), base}
	if nowBase.Digest != sinceBase.Digest {
		if trees[1], err = filetree.Read(ctx, nowBase.RootFS); err != nil {
			return nil, err
		}
	}
	for i, changes := range []string{since, now} {
		if err := trees[i].ApplyFrom(ctx, apart.List, changes, filetree.Overlay, filetree.NewBudget()); err != nil {
			return nil, err
		}
	}
	out := &bothy.SnapshotChanges{Items: []bothy.FileChange{}}
	err = trees[1].Compare(ctx, trees[0], func(c filetree.Change) bool {
		if out.Truncated = len(out.Items) == limit; out.Truncated {
			return false
		}
		out.Items = append(out.Items, fileChange(c))
		return true
	})
	return out, err
}

func fileChange(c filetree.Change) bothy.FileChange {
	f := bothy.FileChange{Path: c.Path, Change: bothy.FileChanged}
	n := c.New
	switch {
	case c.New == nil:
		f.Change, n = bothy.FileRemoved, c.Old
	case c.Old == nil:
		f.Change = bothy.FileAdded
	}
	switch {
	case n.IsDir():
		f.Type = bothy.FileDirectory
	case n.IsLink():
		f.Type = bothy.FileSymlink
	case n.IsFile():
		f.Type, f.Size = bothy.FileRegular, n.Data.Size
	default:
		f.Type = bothy.FileOther
	}
	return f
}
