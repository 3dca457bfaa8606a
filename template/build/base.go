package build

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/template"
	"github.com/bothy-dev/bothy/template/apart"
	"github.com/bothy-dev/bothy/template/tree"
	"github.com/bothy-dev/bothy/templates"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const scratch = "scratch"

// openBase opens the base that a FROM names: nothing, a template of the library, or an image in
// a registry.
func (b *Builder) openBase(ctx context.Context, h *hold, ref string, logins []bothy.RegistryLogin, say func(string, ...any)) (*base, error) {
	if ref == scratch {
		return b.emptyBase(h)
	}
	t, err := b.o.Library.LookupFor(ctx, h.project, ref)
	if err == nil {
		return ofTemplate(t), nil
	}
	if code := bothy.ErrorCode(err); code != bothy.CodeTemplateNotFound && code != bothy.CodeInvalid {
		return nil, err
	}
	if slices.Contains(templates.Names(), ref) { // never an image of that name from a registry
		return nil, bothy.Errorf(bothy.CodeTemplateNotFound, "the built-in template %s has not been built on this server", ref).
			WithHint("Ask the operator to run: bothy template build %s.", ref)
	}
	if filepath.IsAbs(ref) || strings.HasPrefix(ref, ".") {
		return nil, bothy.Errorf(bothy.CodeInvalid, "%s is neither a template nor a reference to an image", ref)
	}
	img, err := b.o.Library.OpenImage(ctx, h.project, ref, logins)
	if err != nil {
		return nil, err
	}
	return b.ofImage(ctx, h, ref, img, say)
}

func ofTemplate(t *store.Template) *base {
	s := settings{Workdir: t.Cwd, User: t.User}
	for _, name := range slices.Sorted(maps.Keys(t.Env)) {
		s.Env = append(s.Env, Var{name, t.Env[name]})
	}
	if t.Image != nil {
		s.Image = *t.Image
	}
	return &base{key: t.Digest, template: t, settings: s, ours: t.User == ""}
}

// emptyBase is an empty image.
func (b *Builder) emptyBase(h *hold) (*base, error) {
	path := b.cache.path(basesDir, h.project, scratch)
	if !h.has(path) {
		if _, err := b.writeImage(h, tree.New(epoch), path); err != nil {
			return nil, err
		}
	}
	return &base{key: scratch, template: &store.Template{Template: bothy.Template{Name: scratch, Digest: "sha256:" + keyOf(scratch)}, RootFS: path}}, nil
}

// writeImage writes a tree as an image of the cache.
func (b *Builder) writeImage(h *hold, t *tree.Tree, path string) (sum imageSum, err error) {
	if err := b.guard(b.cache.dir).Look(); err != nil {
		return sum, err
	}
	if t.Bytes() > h.left() {
		return sum, errShare
	}
	f, err := b.cache.create(path)
	if err != nil {
		return sum, err
	}
	f.Close()
	sum.Digest, sum.SizeBytes, err = b.o.Library.WriteTree(t, f.Name())
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = h.keep(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return sum, err
}

// ofImage makes a base from an image of a registry, unless the cache has it.
func (b *Builder) ofImage(ctx context.Context, h *hold, ref string, img v1.Image, say func(string, ...any)) (*base, error) {
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	c, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	if c.Architecture != "" && c.Architecture != runtime.GOARCH || c.OS != "" && c.OS != "linux" {
		return nil, bothy.Errorf(bothy.CodeTemplateInvalid, "the image %s is for %s/%s, but this host is linux/%s", ref, c.OS, c.Architecture, runtime.GOARCH).
			WithHint("Use an image built for this platform.")
	}
	if n := len(c.Config.Env) + len(c.Config.Labels) + len(c.Config.ExposedPorts) + len(c.Config.Volumes) + len(c.Config.OnBuild); n > maxItems {
		return nil, bothy.Errorf(bothy.CodeTemplateInvalid, "the image %s has %d variables, labels, ports, volumes and ONBUILD instructions, more than %d", ref, n, maxItems).
			WithHint("Use an image with fewer of them.")
	}
	// Each project fetches its own: whoever knows the digest of a private image need not be allowed
	// to have its layers.
	path := b.cache.path(basesDir, h.project, keyOf("image", h.project, digest.String()))
	if !h.has(path) {
		if err := b.unpack(ctx, h, img, path, say); err != nil {
			return nil, err
		}
	}
	return &base{
		key: digest.String(), settings: ofConfig(&c.Config),
		template: &store.Template{
			Template: bothy.Template{Name: scratch, Digest: "sha256:" + keyOf("image", digest.String()), Source: ref + "@" + digest.String()},
			RootFS:   path,
		},
	}, nil
}

func ofConfig(c *v1.Config) settings {
	s := settings{User: c.User, Workdir: c.WorkingDir, Image: template.ConfigOf(c)}
	for _, kv := range c.Env {
		if name, value, ok := strings.Cut(kv, "="); ok {
			s.setEnv(name, value)
		}
	}
	return s
}

// unpack makes an image from another's layers.
func (b *Builder) unpack(ctx context.Context, h *hold, img v1.Image, path string, say func(string, ...any)) error {
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(b.work, "image-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	t, budget := tree.New(epoch), tree.NewBudget()
	for i, l := range layers {
		say("layer %d of %d", i+1, len(layers))
		file := filepath.Join(work, fmt.Sprint(i))
		if err := b.fetch(ctx, l, file); err != nil {
			return bothy.Errorf(bothy.CodeTemplateInvalid, "cannot fetch layer %d of the image: %s", i+1, shorten(err.Error(), maxRefusal)).Because(err)
		}
		if err := t.ApplyFrom(ctx, apart.List, file, tree.OCI, budget); err != nil {
			return bothy.Errorf(bothy.CodeTemplateInvalid, "layer %d of the image cannot be used: %v", i+1, err).Because(err)
		}
	}
	_, err = b.writeImage(h, t, path)
	return err
}

// fetch writes a layer, uncompressed, to a file, and fails if its digest is wrong.
func (b *Builder) fetch(ctx context.Context, l v1.Layer, path string) (err error) {
	want, err := l.DiffID()
	if err != nil {
		return err
	}
	compressed, err := l.Compressed()
	if err != nil {
		return err
	}
	defer compressed.Close()
	content, err := apart.Decompress(ctx, compressed, tree.MaxBytes)
	if err != nil {
		return err
	}
	defer content.Close()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(b.guard(b.work), f, sum), content); err != nil {
		return err
	}
	return isSum(sum, want.Hex)
}

func isSum(h hash.Hash, want string) error {
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("its content has the digest %s, not %s", got, want)
	}
	return nil
}
