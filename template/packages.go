package template

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/template/apart"
	filetree "github.com/bothy-dev/bothy/template/tree"
)

// TemplateSBOM lists the packages in a template that the caller may use.
func (l *Library) TemplateSBOM(ctx context.Context, name, format string) (json.RawMessage, error) {
	t, err := l.findForCaller(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := l.bring(ctx, t); err != nil {
		return nil, err
	}
	list, err := apart.SBOM(ctx, t.RootFS, &t.Template, format)
	if err != nil {
		return nil, readError(ctx, t, err)
	}
	return list, nil
}

// readFiles reads the tree of a template's image.
func readFiles(ctx context.Context, t *store.Template) (*filetree.Tree, error) {
	files, err := filetree.Read(ctx, t.RootFS)
	if err != nil {
		return nil, readError(ctx, t, err)
	}
	return files, nil
}

// readError is the error for an image that could not be read. Most are damaged.
func readError(ctx context.Context, t *store.Template, err error) error {
	var e *bothy.Error
	if errors.As(err, &e) || ctx.Err() != nil {
		return err
	}
	return damaged(t.Name, err.Error())
}
