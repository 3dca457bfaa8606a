package template

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// RegistryPrefix begins the place of an exported template in a registry, apart from a file's path.
const RegistryPrefix = "oci://"

// packWindow is the window of the compression, which bounds the memory that a reader needs.
const packWindow = 8 << 20

// Export writes a built template, as it is in the folder, to a file or to a registry. The result is the
// template and the digest of the artifact. The same template makes the same bytes. Whoever may read the
// folder may export: it checks no scope. There is a signature if there is a key.
func (l *Library) Export(ctx context.Context, name, to string, key ed25519.PrivateKey, progress func(done, total int64)) (*store.Template, string, error) {
	t, err := l.Lookup(name)
	if err != nil {
		return nil, "", err
	}
	ref, inRegistry := strings.CutPrefix(to, RegistryPrefix)
	beside := filepath.Dir(to)
	if inRegistry {
		beside = "" // the system's folder for temporary files
	}
	packed, err := os.CreateTemp(beside, ".bothy-export-")
	if err != nil {
		return nil, "", bothy.Errorf(bothy.CodeInvalid, "the template cannot be written there: %v", err).
			WithHint("Give a file in a folder that exists.")
	}
	defer os.Remove(packed.Name())
	defer packed.Close()
	layer, err := pack(ctx, t, packed, progress)
	if err != nil {
		return nil, "", err
	}
	travels := *t
	travels.Memory, travels.Start, travels.Project = nil, nil, ""
	config, err := seal(&travels, key)
	if err != nil {
		return nil, "", err
	}
	art := &artifact{config: config, layer: layer, packed: packed.Name()}
	if err := art.describe(&travels); err != nil {
		return nil, "", err
	}
	digest := hashOf(art.manifest).String()
	if inRegistry {
		return t, digest, l.exportToRegistry(ctx, ref, art)
	}
	return t, digest, art.writeFile(ctx, to)
}

// pack compresses an image, and fails if it is not the template's.
func pack(ctx context.Context, t *store.Template, to io.Writer, progress func(done, total int64)) (v1.Descriptor, error) {
	var none v1.Descriptor
	f, err := os.Open(t.RootFS)
	if err != nil {
		return none, damaged(t.Ref(), "its image cannot be read").Because(err)
	}
	defer f.Close()
	plain, packed := sha256.New(), sha256.New()
	count := &meter{ctx: ctx, total: t.SizeBytes, progress: progress}
	var size countingWriter
	w, err := zstd.NewWriter(io.MultiWriter(to, packed, &size), zstd.WithEncoderLevel(zstd.SpeedDefault),
		zstd.WithWindowSize(packWindow), zstd.WithEncoderConcurrency(2)) // fixed, for the same bytes on every host
	if err != nil {
		return none, err
	}
	defer w.Close()
	if _, err := io.Copy(io.MultiWriter(w, plain, count), f); err != nil {
		return none, fmt.Errorf("export the template %s: %w", t.Ref(), err)
	}
	if err := w.Close(); err != nil {
		return none, fmt.Errorf("export the template %s: %w", t.Ref(), err)
	}
	if digestPrefix+hex.EncodeToString(plain.Sum(nil)) != t.Digest {
		return none, damaged(t.Ref(), "its image does not match its digest")
	}
	return v1.Descriptor{MediaType: travelImage, Size: int64(size), Digest: v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(packed.Sum(nil))}}, nil
}

type countingWriter int64

func (c *countingWriter) Write(p []byte) (int, error) {
	*c += countingWriter(len(p))
	return len(p), nil
}

// meter reports how much was written to it, and fails when its context ends.
type meter struct {
	ctx         context.Context
	done, total int64
	progress    func(done, total int64)
}

func (m *meter) Write(p []byte) (int, error) {
	if err := m.ctx.Err(); err != nil {
		return 0, err
	}
	m.done += int64(len(p))
	if m.progress != nil {
		m.progress(m.done, m.total)
	}
	return len(p), nil
}

// artifact is a template on its way out.
type artifact struct {
	config, manifest, index []byte
	layer                   v1.Descriptor
	packed                  string // the file with the layer
}

// describe writes the manifest, and the index that a file has.
func (a *artifact) describe(t *store.Template) error {
	notes := map[string]string{"org.opencontainers.image.title": t.Ref()}
	if t.Description != "" {
		notes["org.opencontainers.image.description"] = t.Description
	}
	var err error
	a.manifest, err = json.Marshal(struct {
		SchemaVersion int64             `json:"schemaVersion"`
		MediaType     types.MediaType   `json:"mediaType"`
		ArtifactType  string            `json:"artifactType"`
		Config        v1.Descriptor     `json:"config"`
		Layers        []v1.Descriptor   `json:"layers"`
		Annotations   map[string]string `json:"annotations"`
	}{
		2, types.OCIManifestSchema1, travelType,
		v1.Descriptor{MediaType: travelConfig, Size: int64(len(a.config)), Digest: hashOf(a.config)},
		[]v1.Descriptor{a.layer}, notes,
	})
	if err != nil {
		return err
	}
	a.index, err = json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{{
		MediaType: types.OCIManifestSchema1, ArtifactType: travelType, Size: int64(len(a.manifest)), Digest: hashOf(a.manifest),
		Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH},
		// What tools call the artifact when they copy it.
		Annotations: map[string]string{"org.opencontainers.image.ref.name": t.TagOrDefault()},
	}}})
	return err
}

func hashOf(text []byte) v1.Hash {
	sum := sha256.Sum256(text)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
}

// layoutFile says that a folder or a tar is an OCI layout.
const layoutFile = `{"imageLayoutVersion":"1.0.0"}`

// writeFile writes an OCI layout as a tar. The file appears when it is complete.
func (a *artifact) writeFile(ctx context.Context, to string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(to), ".bothy-export-")
	if err != nil {
		return fmt.Errorf("export to %s: %w", to, err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	w := tar.NewWriter(f)
	entry := func(name string, size int64, content io.Reader) {
		if err == nil {
			err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, ModTime: stampTime, Format: tar.FormatGNU})
		}
		if err == nil {
			_, err = io.Copy(w, content)
		}
	}
	text := func(name string, content []byte) { entry(name, int64(len(content)), bytes.NewReader(content)) }
	packed, err := os.Open(a.packed)
	if err != nil {
		return err
	}
	defer packed.Close()
	text("oci-layout", []byte(layoutFile))
	text("index.json", a.index)
	text(blobPath(hashOf(a.manifest)), a.manifest)
	text(blobPath(hashOf(a.config)), a.config)
	entry(blobPath(a.layer.Digest), a.layer.Size, &untilDone{ctx, packed})
	if err = errors.Join(err, w.Close()); err == nil {
		err = errors.Join(f.Chmod(0o644), f.Sync())
	}
	if err == nil {
		err = os.Rename(f.Name(), to)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("export to %s: %w", to, err)
	}
	return err
}

func blobPath(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

func (l *Library) exportToRegistry(ctx context.Context, ref string, a *artifact) error {
	to, err := l.opts.Registries.parse(ref)
	if err == nil && strings.Contains(ref, "@") {
		err = errors.New("the digest cannot be chosen")
	}
	if err != nil {
		return bothy.Errorf(bothy.CodeInvalid, "a template cannot be exported to %q", ref).
			WithHint("Write it like %sregistry.example.com/team/template:tag.", RegistryPrefix).Because(err)
	}
	options, err := l.registryOptions(bothy.DefaultProject, to, false, nil)
	if err != nil {
		return err
	}
	img, err := partial.CompressedToImage(a)
	if err != nil {
		return err
	}
	if err := remote.Write(to, img, append(options, remote.WithContext(ctx))...); err != nil {
		return pushError(ref, err)
	}
	return nil
}

// These make an artifact what a registry's client takes.

func (a *artifact) RawManifest() ([]byte, error)        { return a.manifest, nil }
func (a *artifact) RawConfigFile() ([]byte, error)      { return a.config, nil }
func (a *artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (a *artifact) LayerByDigest(h v1.Hash) (partial.CompressedLayer, error) {
	if h != a.layer.Digest {
		return nil, fmt.Errorf("there is no layer %s", h)
	}
	return packedLayer{a}, nil
}

type packedLayer struct{ of *artifact }

func (p packedLayer) Digest() (v1.Hash, error)            { return p.of.layer.Digest, nil }
func (p packedLayer) Size() (int64, error)                { return p.of.layer.Size, nil }
func (p packedLayer) MediaType() (types.MediaType, error) { return p.of.layer.MediaType, nil }
func (p packedLayer) Compressed() (io.ReadCloser, error)  { return os.Open(p.of.packed) }
