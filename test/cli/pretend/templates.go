package pretend

import (
	"context"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/template"
)

// library is a library without a network: it pretends to build, and to push.
type library struct {
	*template.Library
	// Made makes a new template.
	Made func(name string) (*bothy.Template, error)
}

// made makes one whose name has been checked.
func (t *library) made(name string) *bothy.Template {
	made, err := t.Made(name)
	if err != nil {
		panic(err)
	}
	return made
}

// BuildTemplate pretends two steps. An image with the word "false" fails.
func (t *library) BuildTemplate(ctx context.Context, req bothy.TemplateBuild, log func(bothy.BuildEvent)) (*bothy.Template, error) {
	if _, err := bothy.Require(ctx, bothy.ScopeTemplatesWrite); err != nil {
		return nil, err
	}
	if !bothy.ValidTemplateName(req.Name) {
		return nil, bothy.Errorf(bothy.CodeInvalid, "template name %q is not valid", req.Name).WithHint("Use lower-case letters, digits, dots and dashes.")
	}
	log(bothy.BuildEvent{Step: "fetch", Message: "the base", Percent: 20})
	if strings.Contains(req.Image, "false") {
		return nil, bothy.Errorf(bothy.CodeTemplateInvalid, "the image cannot be unpacked").WithHint("Mend the image.")
	}
	log(bothy.BuildEvent{Step: "pack", Message: "the image", Percent: 80})
	return t.Made(req.Name)
}

// PushTemplate pretends to have pushed one.
func (t *library) PushTemplate(ctx context.Context, name string, req bothy.TemplatePush) (*bothy.PushedTemplate, error) {
	found, err := t.Template(ctx, name)
	if err != nil {
		return nil, err
	}
	return &bothy.PushedTemplate{Reference: req.Reference + "@" + found.Digest, Digest: found.Digest, SizeBytes: found.SizeBytes}, nil
}
