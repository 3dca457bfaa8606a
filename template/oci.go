package template

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/disk"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// fromImage makes the root file system from an OCI image: an absolute path of an OCI layout or
// of a tar from `docker save`, or else a reference.
func (b *build) fromImage(ref string) []step {
	var img v1.Image
	return []step{
		{"resolve", 2, func(ctx context.Context) (err error) {
			img, err = b.lib.openImage(ctx, ref)
			return err
		}},
		{"layers", 20, func(ctx context.Context) error { return b.unpackImage(ctx, img) }},
		{"settings", 1, func(context.Context) error { return b.takeConfig(ref, img) }},
	}
}

func (l *Library) openImage(ctx context.Context, ref string) (v1.Image, error) {
	if !filepath.IsAbs(ref) {
		return l.OpenImage(ctx, bothy.DefaultProject, ref, nil)
	}
	info, err := os.Stat(ref)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeFileNotFound, "there is no image at %s on the server's host", ref).
			WithHint("Give the path of an OCI layout folder or of a tar from docker save, on the server's host.").Because(err)
	}
	var img v1.Image
	if info.IsDir() {
		img, err = openLayout(ref)
	} else {
		img, err = tarball.ImageFromPath(ref, nil)
		img = saved{img}
	}
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeTemplateInvalid, "%s is neither an OCI layout folder nor a tar from docker save: %v", ref, err).
			WithHint("Write it again with `docker save IMAGE -o FILE`; a tar must contain exactly one image.").Because(err)
	}
	return img, nil
}

// saved is an image from docker save, whose layers are plain in their file: they need not be
// compressed in order to be read.
type saved struct{ v1.Image }

func (s saved) Layers() ([]v1.Layer, error) {
	list, err := s.Image.Layers()
	for i, l := range list {
		list[i] = plainLayer{l}
	}
	return list, err
}

type plainLayer struct{ v1.Layer }

func (l plainLayer) Compressed() (io.ReadCloser, error) { return l.Uncompressed() }

// openLayout finds the image for this platform in a layout folder.
func openLayout(dir string) (v1.Image, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	return pick(index)
}

// pick searches an index, including nested ones, for the one image that runs on this host.
func pick(index v1.ImageIndex) (v1.Image, error) {
	m, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var found []v1.Image
	for _, d := range m.Manifests {
		switch {
		case d.MediaType.IsIndex():
			inner, err := index.ImageIndex(d.Digest)
			if err != nil {
				return nil, err
			}
			if img, err := pick(inner); err == nil {
				found = append(found, img)
			}
		case d.MediaType.IsImage() && (d.Platform == nil || d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH):
			img, err := index.Image(d.Digest)
			if err != nil {
				return nil, err
			}
			found = append(found, img)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("it contains %d images for linux/%s instead of one", len(found), runtime.GOARCH)
	}
	return found[0], nil
}

// DescriptionLabel is the label with an image's description, which becomes its template's.
const DescriptionLabel = "org.opencontainers.image.description"

func (b *build) unpackImage(ctx context.Context, img v1.Image) error {
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	budget := int64(maxImageBytes)
	guard := &disk.Guard{Dir: b.work, Min: b.lib.opts.MinFreeDisk}
	for i, l := range layers {
		size, err := l.Size()
		if err != nil {
			return err
		}
		b.advance(float64(i)/float64(len(layers)), "layer %d of %d, %d MB", i+1, len(layers), size>>20)
		err = b.root.unpackLayer(ctx, l, &budget, guard)
		if errors.Is(err, disk.ErrNoRoom) {
			return bothy.Errorf(bothy.CodeDiskFull, "the host's disk has no room for the image").
				WithHint("Delete unneeded templates and snapshots, or add disk space.").Because(err)
		}
		if err != nil {
			return fmt.Errorf("layer %d: %w", i+1, err)
		}
	}
	return nil
}

// takeConfig copies an image's settings for commands.
func (b *build) takeConfig(ref string, img v1.Image) error {
	c, err := img.ConfigFile()
	if err != nil {
		return err
	}
	if c.Architecture != "" && c.Architecture != runtime.GOARCH || c.OS != "" && c.OS != "linux" {
		return bothy.Errorf(bothy.CodeTemplateInvalid, "the image %s is for %s/%s, but this host is linux/%s", ref, c.OS, c.Architecture, runtime.GOARCH).
			WithHint("Use an image built for this platform.")
	}
	digest, err := img.Digest()
	if err != nil {
		return err
	}
	b.t.Source = strings.TrimSuffix(ref, "@"+digest.String()) + "@" + digest.String()
	b.t.Origin = &bothy.TemplateOrigin{
		Kind: bothy.FromImage, Parameters: map[string]any{"image": ref}, Materials: []bothy.Material{{Name: ref, Digest: digest.String()}}, StartedAt: &b.t.CreatedAt,
	}
	b.t.Description = c.Config.Labels[DescriptionLabel]
	image := ConfigOf(&c.Config)
	b.t.Image = &image
	b.t.Entrypoint = append(append([]string{}, c.Config.Entrypoint...), c.Config.Cmd...)
	maps.Copy(b.t.Env, imageEnv(c.Config.Env))
	b.searchPath = b.t.Env["PATH"]
	if dir := c.Config.WorkingDir; filepath.IsAbs(dir) && dir != "/" {
		b.t.Cwd = filepath.Clean(dir)
		// The folder need not be in any layer.
		if !b.root.exists(b.t.Cwd) {
			return b.root.mkdir(b.t.Cwd, 0o755, userID)
		}
	}
	return nil
}

// imageEnv omits variables that depend on the user or the machine.
func imageEnv(env []string) map[string]string {
	m := map[string]string{}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		switch k {
		case "", "HOME", "HOSTNAME", "USER", "PWD", "TERM":
		default:
			m[k] = v
		}
	}
	return m
}
