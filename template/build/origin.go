package build

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
)

// origin describes how the build makes its template. Of secrets, and arguments that look like
// secrets, it has only the names.
func (j *job) origin() *bothy.TemplateOrigin {
	r := &j.req
	asked := map[string]any{"name": r.Name, "dockerfile": r.Dockerfile}
	args := maps.Clone(r.Args)
	for name := range args {
		if secretName.MatchString(name) {
			args[name] = "(not recorded)"
		}
	}
	secrets := make([]string, len(r.Secrets))
	for i, s := range r.Secrets {
		secrets[i] = s.ID
	}
	slices.Sort(secrets)
	if len(args) > 0 {
		asked["args"] = args
	}
	if len(secrets) > 0 {
		asked["secrets"] = secrets
	}
	if r.Target != "" {
		asked["target"] = r.Target
	}
	if r.Start != nil {
		asked["start"] = r.Start
	}
	settings := map[string]any{"platform": platformArgs["TARGETPLATFORM"], "network": j.network(Step{}).Mode, "no_cache": r.NoCache}
	if r.Engine != "" {
		settings["engine"] = r.Engine
	}
	return &bothy.TemplateOrigin{
		Kind: bothy.FromDockerfile, ID: j.id, Parameters: asked, Settings: settings, Materials: j.materials(), StartedAt: j.began,
	}
}

// materials are the images that stages start from or copy from, and the contexts.
func (j *job) materials() []bothy.Material {
	var list []bothy.Material
	j.mu.Lock()
	for ref, slot := range j.bases {
		if slot.base != nil && slot.base.key != scratch {
			list = append(list, bothy.Material{Name: ref, Digest: slot.base.key})
		}
	}
	j.mu.Unlock()
	contexts := map[string]string{"context": j.req.ContextID}
	for name, id := range j.req.Contexts {
		contexts["context "+name] = id
	}
	for name, id := range contexts {
		if id != "" {
			list = append(list, bothy.Material{Name: name, Digest: "sha256:" + strings.TrimPrefix(id, contextPrefix)})
		}
	}
	slices.SortFunc(list, func(a, b bothy.Material) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Digest, b.Digest))
	})
	return list
}
