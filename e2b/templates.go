package e2b

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
)

// bareName is a template's name without its namespace and tag.
func bareName(name string) string {
	if _, rest, ok := strings.Cut(name, "/"); ok {
		name = rest
	}
	name, _, _ = strings.Cut(name, ":")
	return name
}

// Origin finds what a sandbox starts from, by any of the names that E2B's clients use: one of
// E2B's own templates, a snapshot's id or name, or a template of this server.
func (d *Door) Origin(ctx context.Context, asked string) (template, snapshot string, err error) {
	name := bareName(asked)
	if strings.HasPrefix(name, "snp") {
		if _, err := d.Snapshots.Snapshot(ctx, name); err == nil {
			return "", name, nil
		}
	}
	if t, ok := d.config.Templates[name]; ok {
		return t, "", nil
	}
	t, err := d.Templates.Template(withRead(ctx), tagged(asked))
	if err == nil {
		return t.Ref(), "", nil
	}
	if bothy.ErrorCode(err) != bothy.CodeTemplateNotFound {
		return "", "", err
	}
	p, err := d.Snapshots.Snapshots(ctx, bothy.SnapshotFilter{Name: name, Limit: 1})
	if err != nil {
		return "", "", err
	}
	if len(p.Items) > 0 {
		return "", p.Items[0].ID, nil
	}
	return "", "", bothy.Errorf(bothy.CodeTemplateNotFound, "template %q was not found", asked).
		WithHint("`bothy template ls` lists the templates; docs/e2b.md says which of E2B's names are known")
}

// withRead lets a key that may create sandboxes look up a name: it would learn the same by
// creating one.
func withRead(ctx context.Context) context.Context {
	c := bothy.CallerFrom(ctx)
	if c == nil || c.Can(bothy.ScopeTemplatesRead) {
		return ctx
	}
	may := *c
	may.Scopes = append([]bothy.Scope{bothy.ScopeTemplatesRead}, c.Scopes...)
	return bothy.WithCaller(ctx, &may)
}

func (d *Door) templateRoutes() []Route {
	look := bothy.ScopeTemplatesRead
	return []Route{
		route("GET /templates", "list-templates", look, d.listTemplates),
		route("GET /v2/templates", "list-templates", look, d.listTemplates),
		route("GET /default-templates", "list-templates", look, d.listTemplates),
		route("GET /templates/{templateID}", "get-template", look, d.getTemplate),
		route("GET /templates/aliases/{alias}", "get-template", look, d.templateByAlias),
		route("DELETE /templates/{templateID}", "delete-template", bothy.ScopeSandboxesWrite, d.deleteTemplate),
	}
}

// template is a client's view of a template.
type template struct {
	TemplateID    string     `json:"templateID"`
	BuildID       string     `json:"buildID"`
	CPUCount      int        `json:"cpuCount"`
	MemoryMB      int        `json:"memoryMB"`
	DiskSizeMB    int        `json:"diskSizeMB"`
	Public        bool       `json:"public"`
	Aliases       []string   `json:"aliases"`
	Names         []string   `json:"names"`
	CreatedAt     time.Time  `json:"createdAt"`
	UpdatedAt     time.Time  `json:"updatedAt"`
	CreatedBy     *string    `json:"createdBy"`
	LastSpawnedAt *time.Time `json:"lastSpawnedAt"`
	SpawnCount    int        `json:"spawnCount"`
	BuildCount    int        `json:"buildCount"`
	EnvdVersion   string     `json:"envdVersion"`
	BuildStatus   string     `json:"buildStatus"`
	IsDefault     bool       `json:"isDefault"`
	Description   string     `json:"description,omitempty"`
	Builds        []any      `json:"builds,omitempty"`
}

func (d *Door) templateOf(t *bothy.Template) template {
	x := template{
		TemplateID: t.Name, BuildID: buildIDOf(t), CPUCount: bothy.DefaultCPU, MemoryMB: bothy.DefaultMemoryMB,
		DiskSizeMB: bothy.DefaultDiskMB, Public: true, Aliases: []string{}, CreatedAt: t.CreatedAt, UpdatedAt: t.CreatedAt,
		BuildCount: 1, EnvdVersion: envdVersion, BuildStatus: "ready", Description: t.Description,
	}
	for alias, name := range d.config.Templates {
		if name == t.Name {
			x.Aliases = append(x.Aliases, alias)
			x.IsDefault = true
		}
	}
	x.Names = append([]string{t.Name}, x.Aliases...)
	return x
}

func (d *Door) listTemplates(w http.ResponseWriter, r *http.Request) error {
	all, err := d.Templates.Templates(r.Context())
	if err != nil {
		return err
	}
	list := []template{}
	at := map[string]int{}
	for _, t := range all {
		i, ok := at[t.Name]
		if !ok {
			i, at[t.Name] = len(list), len(list)
			list = append(list, d.templateOf(t))
		}
		if tag := tagThere(t.Tag); tag != defaultTag {
			list[i].Names = append(list[i].Names, t.Name+":"+tag)
		}
	}
	return reply(w, http.StatusOK, list)
}

// named finds a template of this server by any of its names.
func (d *Door) named(ctx context.Context, name string) (*bothy.Template, error) {
	if t, ok := d.config.Templates[bareName(name)]; ok {
		return d.Templates.Template(ctx, t)
	}
	return d.Templates.Template(ctx, tagged(name))
}

func (d *Door) getTemplate(w http.ResponseWriter, r *http.Request) error {
	t, err := d.named(r.Context(), r.PathValue("templateID"))
	if err != nil {
		return err
	}
	x := d.templateOf(t)
	x.Builds = []any{map[string]any{
		"buildID": x.BuildID, "status": "ready", "createdAt": x.CreatedAt, "updatedAt": x.UpdatedAt, "finishedAt": x.UpdatedAt,
		"cpuCount": x.CPUCount, "memoryMB": x.MemoryMB, "diskSizeMB": x.DiskSizeMB, "envdVersion": envdVersion,
	}}
	return reply(w, http.StatusOK, x)
}

func (d *Door) templateByAlias(w http.ResponseWriter, r *http.Request) error {
	alias := r.PathValue("alias")
	t, err := d.named(r.Context(), alias)
	if err == nil {
		return reply(w, http.StatusOK, map[string]any{"templateID": t.Name, "public": true})
	}
	if bothy.CallerFrom(r.Context()).Can(bothy.ScopeSandboxesRead) {
		p, lerr := d.Snapshots.Snapshots(r.Context(), bothy.SnapshotFilter{Name: bareName(alias), Limit: 1})
		if lerr == nil && len(p.Items) > 0 {
			return reply(w, http.StatusOK, map[string]any{"templateID": p.Items[0].ID, "public": false})
		}
	}
	return err
}

// deleteTemplate deletes a snapshot, which is a template in E2B's eyes, or a template.
func (d *Door) deleteTemplate(w http.ResponseWriter, r *http.Request) error {
	name := tagged(r.PathValue("templateID"))
	d.Server.Note(r, "", name, "")
	_, snapshot, err := d.Origin(r.Context(), name)
	if err != nil {
		return err
	}
	if snapshot != "" {
		err = d.Snapshots.DeleteSnapshot(r.Context(), snapshot)
	} else {
		if _, err := d.ownName(name); err != nil {
			return err
		}
		err = d.Templates.RemoveTemplate(r.Context(), name)
	}
	if err != nil {
		return err
	}
	return done(w)
}
