package template

import (
	"context"
	"encoding/json"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/template/provenance"
)

// TemplateProvenance says how a template that the caller may use was made.
func (l *Library) TemplateProvenance(ctx context.Context, name string) (json.RawMessage, error) {
	t, err := l.Template(ctx, name)
	if err != nil {
		return nil, err
	}
	known := *t
	if known.Origin == nil && t.Recipe != "" {
		known.Origin = builtInOrigin(t)
	}
	if known.Origin == nil {
		return nil, bothy.Errorf(bothy.CodeNotFound, "nothing is recorded of how the template %s was made", t.Ref()).
			WithHint("Earlier versions of the server recorded nothing: make the template again.")
	}
	return provenance.Statement(&known)
}

func builtInOrigin(t *bothy.Template) *bothy.TemplateOrigin {
	return &bothy.TemplateOrigin{Kind: bothy.FromBuiltIn, Parameters: map[string]any{"template": t.Name, "recipe": t.Recipe}}
}

// signOff adds the provenance of a template when it is done.
func (l *Library) signOff(t *bothy.Template) {
	if t.Origin == nil {
		return
	}
	now := time.Now().UTC()
	t.Origin.Bothy, t.Origin.EndedAt = l.opts.Version, &now
}
