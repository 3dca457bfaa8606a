package template

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/bothy-dev/bothy/template/sbom"
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
	files, err := filetree.Read(t.RootFS)
	if err != nil {
		return nil, damaged(t.Name, err.Error())
	}
	list, err := sbom.Packages(files)
	if err != nil {
		return nil, damaged(t.Name, err.Error())
	}
	var b bytes.Buffer
	err = sbom.Write(&b, &t.Template, list, format)
	return b.Bytes(), err
}
