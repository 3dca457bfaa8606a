package template

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/stream"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	filetree "github.com/bothy-dev/bothy/template/tree"
)

// PushTemplate pushes a template that the caller may use to a registry, as an image with one
// layer. Its memory is not included.
func (l *Library) PushTemplate(ctx context.Context, template string, req bothy.TemplatePush) (*bothy.PushedTemplate, error) {
	c, err := bothy.Require(ctx, bothy.ScopeTemplatesWrite)
	if err != nil {
		return nil, err
	}
	to, err := l.opts.Registries.parse(req.Reference)
	switch {
	case err != nil:
	case strings.Contains(req.Reference, "@"):
		err = errors.New("the digest cannot be chosen")
	case strings.HasPrefix(req.Reference, "/"), strings.HasPrefix(req.Reference, "."):
		err = errors.New("it is the path of a file")
	}
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeInvalid, "an image cannot be pushed to %q", req.Reference).
			WithHint("Write it like registry.example.com/team/image:tag.").Because(err)
	}
	options, err := l.registryOptions(c.ProjectID, to, false, req.Registries)
	if err != nil {
		return nil, err
	}
	t, err := l.LookupFor(ctx, c.ProjectID, template)
	if err != nil {
		return nil, err
	}
	files, err := readFiles(ctx, t)
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	defer r.Close() // ends the writer if the reader stopped early
	go func() { w.CloseWithError(files.WriteLayer(filetree.New(stampTime), w)) }()
	img, err := imageOf(t, r)
	if err != nil {
		return nil, err
	}
	if err := remote.Write(to, img, append(options, remote.WithContext(ctx))...); err != nil {
		return nil, pushError(req.Reference, err)
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	size, err := img.Size()
	if err != nil {
		return nil, err
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	for _, layer := range layers {
		n, err := layer.Size()
		if err != nil {
			return nil, err
		}
		size += n
	}
	return &bothy.PushedTemplate{Reference: to.Context().Digest(digest.String()).String(), Digest: digest.String(), SizeBytes: size}, nil
}

// imageOf describes a template as a container image. The same template makes the same image.
// The layer is read once, while it is sent.
func imageOf(t *store.Template, layer io.ReadCloser) (v1.Image, error) {
	c, err := empty.Image.ConfigFile()
	if err != nil {
		return nil, err
	}
	c = c.DeepCopy()
	c.OS, c.Architecture, c.Created = "linux", runtime.GOARCH, v1.Time{Time: t.CreatedAt}
	c.Config = v1.Config{User: cmp.Or(t.User, bothy.DefaultUser), WorkingDir: cmp.Or(t.Cwd, bothy.DefaultCwd), Entrypoint: t.Entrypoint}
	for _, key := range slices.Sorted(maps.Keys(t.Env)) {
		c.Config.Env = append(c.Config.Env, key+"="+t.Env[key])
	}
	if i := t.Image; i != nil {
		setConfig(&c.Config, i)
	}
	if t.Description != "" {
		if c.Config.Labels == nil {
			c.Config.Labels = map[string]string{}
		}
		c.Config.Labels[DescriptionLabel] = cmp.Or(c.Config.Labels[DescriptionLabel], t.Description)
	}
	img, err := mutate.ConfigFile(empty.Image, c)
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(img, stream.NewLayer(layer))
}
