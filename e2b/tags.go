package e2b

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/google/uuid"
)

// defaultTag is E2B's tag for a template name without one.
const defaultTag = "default"

func (d *Door) tagRoutes() []Route {
	look, write := bothy.ScopeTemplatesRead, bothy.ScopeTemplatesWrite
	return []Route{
		route("POST /templates/tags", "tag-template", write, d.assignTags),
		route("DELETE /templates/tags", "untag-template", write, d.removeTags),
		// ServeMux cannot distinguish "tags" here from an alias of that name.
		route("GET /templates/{templateID}/{part}", "list-tags", look, d.listTags),
	}
}

// tagged is a template's name without its namespace, with a tag of this server's.
func tagged(name string) string {
	bare := bareName(name)
	if _, tag, ok := strings.Cut(name, ":"); ok {
		return bare + ":" + tagHere(tag)
	}
	return bare
}

// tagHere converts one of E2B's tags to this server's, and tagThere does the opposite.
func tagHere(tag string) string {
	if tag == defaultTag {
		return bothy.DefaultTag
	}
	return tag
}

func tagThere(tag string) string {
	if tag == "" || tag == bothy.DefaultTag {
		return defaultTag
	}
	return tag
}

// buildIDOf is a build's id as E2B's clients need it: the same for the same image.
func buildIDOf(t *bothy.Template) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(t.Digest)).String()
}

// ownName returns the name of a template that may be changed, unlike those in the settings.
func (d *Door) ownName(name string) (string, error) {
	bare := bareName(name)
	if _, ok := d.config.Templates[bare]; ok {
		return "", bothy.Errorf(bothy.CodeForbidden, "%q is a name that this server gives to one of its templates", bare).
			WithHint("Choose another name")
	}
	return bare, nil
}

func (d *Door) assignTags(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Target string   `json:"target"`
		Tags   []string `json:"tags"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	name, err := d.ownName(in.Target)
	if err != nil {
		return err
	}
	d.Server.Note(r, "", name, "")
	here := make([]string, len(in.Tags))
	for i, tag := range in.Tags {
		here[i] = tagHere(tag)
	}
	list, err := d.Templates.TagTemplate(r.Context(), tagged(in.Target), here)
	if err != nil {
		return err
	}
	return reply(w, http.StatusCreated, map[string]any{"tags": in.Tags, "buildID": buildIDOf(list[0])})
}

func (d *Door) removeTags(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Name string   `json:"name"`
		Tags []string `json:"tags"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	name, err := d.ownName(in.Name)
	if err != nil {
		return err
	}
	d.Server.Note(r, "", name, "")
	if len(in.Tags) == 0 {
		return invalid("there are no tags to remove")
	}
	for _, tag := range in.Tags {
		if err := d.Templates.RemoveTemplate(r.Context(), name+":"+tagHere(tag)); err != nil {
			return err
		}
	}
	return done(w)
}

type tagInfo struct {
	Tag       string    `json:"tag"`
	BuildID   string    `json:"buildID"`
	CreatedAt time.Time `json:"createdAt"`
}

func (d *Door) listTags(w http.ResponseWriter, r *http.Request) error {
	if part := r.PathValue("part"); part != "tags" {
		return unsupported("%s of templates do not exist on this server", part).WithHint("Use a newer client")
	}
	name := r.PathValue("templateID")
	if t, ok := d.config.Templates[bareName(name)]; ok {
		name = t
	}
	all, err := d.sameName(r.Context(), bareName(name))
	if err != nil {
		return err
	}
	if len(all) == 0 {
		_, err := d.named(r.Context(), name) // reports what exists
		return err
	}
	list := make([]tagInfo, len(all))
	for i, t := range all {
		list[i] = tagInfo{tagThere(t.Tag), buildIDOf(t), t.CreatedAt}
	}
	return reply(w, http.StatusOK, list)
}

// sameName lists a template under each of its tags. If a project has its own, shared ones with
// the same name are left out.
func (d *Door) sameName(ctx context.Context, name string) ([]*bothy.Template, error) {
	all, err := d.Templates.Templates(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(t *bothy.Template) bool { return t.Name != name })
	if i := slices.IndexFunc(all, func(t *bothy.Template) bool { return t.Project != "" }); i >= 0 {
		owner := all[i].Project
		all = slices.DeleteFunc(all, func(t *bothy.Template) bool { return t.Project != owner })
	}
	return all, nil
}
