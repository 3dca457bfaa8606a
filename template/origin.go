package template

import (
	"context"
	"encoding/json"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/template/provenance"
)

// TemplateProvenance returns the provenance of a template that the caller may use.
func (l *Library) TemplateProvenance(ctx context.Context, name string) (json.RawMessage, error) {
	t, err := l.findForCaller(ctx, name)
	if err != nil {
		return nil, err
	}
	known := *t
	if known.Origin == nil && t.Recipe != "" {
		known.Origin = builtInOrigin(t)
	}
	if known.Origin == nil {
		return nil, bothy.Errorf(bothy.CodeNotFound, "the template %s has no record of how it was made", t.Ref()).
			WithHint("Earlier versions of the server did not record it: build the template again.")
	}
	return provenance.Statement(&known)
}

func builtInOrigin(t *store.Template) *bothy.TemplateOrigin {
	return &bothy.TemplateOrigin{Kind: bothy.FromBuiltIn, Parameters: map[string]any{"template": t.Name, "recipe": t.Recipe}}
}

// signOff adds the provenance of a finished template. One that was finished elsewhere keeps its own.
func (l *Library) signOff(t *store.Template) {
	if t.Origin == nil || t.Origin.EndedAt != nil {
		return
	}
	now := time.Now().UTC()
	t.Origin.Bothy, t.Origin.EndedAt = l.opts.Version, &now
}
