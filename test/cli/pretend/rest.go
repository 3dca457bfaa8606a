package pretend

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// Templates is the bothy.TemplateService of a world.
type Templates struct{ *World }

func (w *World) addTemplate(name string) *bothy.Template {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &bothy.Template{
		Version: bothy.ManifestVersion, Name: name, Description: "a pretended template",
		Digest: "sha256:" + strings.Repeat("0", 64), SizeBytes: 300 << 20, CreatedAt: time.Now().UTC(), Source: "pretend:" + name,
	}
	w.templates[name] = t
	return t
}

func (w Templates) find(name string) (*bothy.Template, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t, ok := w.templates[name]
	if !ok {
		return nil, bothy.Errorf(bothy.CodeTemplateNotFound, "there is no template %s", name).WithHint("Build it: bothy template build %s.", name)
	}
	return t, nil
}

// Templates lists them by name.
func (w Templates) Templates(context.Context) ([]*bothy.Template, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := []*bothy.Template{}
	for _, t := range w.templates {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b *bothy.Template) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Template finds one.
func (w Templates) Template(_ context.Context, name string) (*bothy.Template, error) {
	return w.find(name)
}

// BuildTemplate pretends two steps. An image with the word "false" fails.
func (w Templates) BuildTemplate(_ context.Context, req bothy.TemplateBuild, log func(bothy.BuildEvent)) (*bothy.Template, error) {
	if !bothy.ValidTemplateName(req.Name) {
		return nil, bothy.Errorf(bothy.CodeInvalid, "template name %q is not valid", req.Name).WithHint("Use lower-case letters, digits, dots and dashes.")
	}
	log(bothy.BuildEvent{Step: "fetch", Message: "the base", Percent: 20})
	if strings.Contains(req.Image, "false") {
		return nil, bothy.Errorf(bothy.CodeTemplateInvalid, "the image cannot be unpacked").WithHint("Mend the image.")
	}
	log(bothy.BuildEvent{Step: "pack", Message: "the image", Percent: 80})
	return w.addTemplate(req.Name), nil
}

// CreateTemplate pretends to make one of a sandbox.
func (w Templates) CreateTemplate(_ context.Context, id string, req bothy.TemplateCapture) (*bothy.Template, error) {
	if !bothy.ValidTemplateName(req.Name) {
		return nil, bothy.Errorf(bothy.CodeInvalid, "template name %q is not valid", req.Name).WithHint("Use lower-case letters, digits, dots and dashes.")
	}
	t := w.addTemplate(req.Name)
	t.Source = "sandbox " + id
	return t, nil
}

// TagTemplate gives one tags.
func (w Templates) TagTemplate(_ context.Context, name string, tags []string) ([]*bothy.Template, error) {
	t, err := w.find(name)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var tagged []*bothy.Template
	for _, tag := range tags {
		c := *t
		c.Tag = tag
		w.templates[c.Ref()] = &c
		tagged = append(tagged, &c)
	}
	return tagged, nil
}

// PushTemplate pretends to have pushed one.
func (w Templates) PushTemplate(ctx context.Context, name string, req bothy.TemplatePush) (*bothy.PushedTemplate, error) {
	t, err := w.Template(ctx, name)
	if err != nil {
		return nil, err
	}
	return &bothy.PushedTemplate{Reference: req.Reference + "@" + t.Digest, Digest: t.Digest, SizeBytes: t.SizeBytes}, nil
}

// TemplateSBOM pretends to list packages.
func (w Templates) TemplateSBOM(ctx context.Context, name, format string) (json.RawMessage, error) {
	if _, err := w.Template(ctx, name); err != nil {
		return nil, err
	}
	return json.RawMessage(`{"format":"` + format + `"}`), nil
}

// TemplateProvenance pretends to know how a template was made.
func (w Templates) TemplateProvenance(ctx context.Context, name string) (json.RawMessage, error) {
	t, err := w.Template(ctx, name)
	if err != nil {
		return nil, err
	}
	return json.RawMessage(`{"subject":[{"name":"` + t.Name + `"}]}`), nil
}

// RemoveTemplate deletes one.
func (w Templates) RemoveTemplate(_ context.Context, name string) error {
	if _, err := w.find(name); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.templates, name)
	return nil
}

// Tokens is the bothy.TokenService of a world.
type Tokens struct{ *World }

func (w *World) addToken(key, name string, scopes []bothy.Scope) *store.Token {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := &store.Token{Token: bothy.Token{ID: newID("tok_"), Name: name, ProjectID: bothy.DefaultProject, Scopes: scopes, CreatedAt: time.Now().UTC()}, Hash: key}
	w.tokens[t.ID] = t
	return t
}

// Authenticate finds the caller behind a key.
func (w Tokens) Authenticate(_ context.Context, key string) (*bothy.Caller, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.tokens {
		if t.Hash == key {
			return &bothy.Caller{ProjectID: t.ProjectID, TokenID: t.ID, Scopes: t.Scopes}, nil
		}
	}
	return nil, bothy.Errorf(bothy.CodeUnauthenticated, "this API key is not known here").WithHint("`bothy up` writes one that is.")
}

// CreateToken makes a key.
func (w Tokens) CreateToken(_ context.Context, req bothy.TokenCreate) (*bothy.Token, error) {
	for _, scope := range req.Scopes {
		if !slices.Contains(bothy.AllScopes, scope) {
			return nil, bothy.Errorf(bothy.CodeInvalid, "scope %q is not known", scope).WithHint("Scopes are sandboxes:read and others.")
		}
	}
	key := newID("bothy_0123456789abcdef")
	t := w.addToken(key, req.Name, req.Scopes).Token
	t.Key, t.ExpiresAt = key, req.ExpiresAt
	return &t, nil
}

// Tokens lists keys.
func (w Tokens) Tokens(context.Context) ([]*bothy.Token, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := []*bothy.Token{}
	for _, t := range w.tokens {
		list = append(list, &t.Token)
	}
	slices.SortFunc(list, func(a, b *bothy.Token) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list, nil
}

// DeleteToken revokes a key.
func (w Tokens) DeleteToken(_ context.Context, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.tokens[id]; !ok {
		return bothy.Errorf(bothy.CodeNotFound, "no token %q", id).WithHint("`bothy token ls` lists them.")
	}
	delete(w.tokens, id)
	return nil
}
