package template

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/bounded"
	"github.com/bothy-dev/bothy/internal/disk"
	"github.com/bothy-dev/bothy/store"
	"github.com/bothy-dev/bothy/template/apart"
)

// PullOptions say which exported templates Pull trusts.
type PullOptions struct {
	// Keys are those of which one must have signed the template.
	Keys []ed25519.PublicKey
	// Unsigned is set if nothing need be signed.
	Unsigned bool
	// Digest, if it is not empty, is the only digest that the template's image may have.
	Digest string
	// Progress is called with how much of the image is here.
	Progress func(done, total int64)
}

// Pull takes a template that Export wrote to a file or a registry into the folder, under the name that it had
// there. The template appears when it is complete and everything was checked. One that is here already and
// intact is not read again. Whoever may write to the folder may pull: it checks no scope, and the server of
// the folder may run or not.
func (l *Library) Pull(ctx context.Context, from string, o PullOptions) (t *store.Template, already bool, err error) {
	var of parcel
	if ref, ok := strings.CutPrefix(from, RegistryPrefix); ok {
		of, err = l.openRegistryParcel(ctx, ref)
	} else {
		of, err = openFileParcel(ctx, from)
	}
	if err != nil {
		return nil, false, err
	}
	defer of.Close()
	m, err := v1.ParseManifest(bytes.NewReader(of.manifest()))
	if err != nil {
		return nil, false, noTemplate(from, err)
	}
	if m.Config.MediaType != travelConfig || len(m.Layers) != 1 || m.Layers[0].MediaType != travelImage {
		return nil, false, noTemplate(from, fmt.Errorf("its config is a %q", bounded.Short(string(m.Config.MediaType))))
	}
	config, err := of.config(ctx, m.Config)
	if err != nil {
		return nil, false, err
	}
	if t, err = unseal(ctx, from, config, o); err != nil {
		return nil, false, err
	}
	unlock, err := l.lock(ctx, t.Name, func() {})
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	if had, err := l.load(t.Name, tagLink(t.TagOrDefault())); err == nil && had.Digest == t.Digest {
		if err := Verify(ctx, had); err == nil || ctx.Err() != nil {
			return had, true, err
		}
	}
	if err := l.receive(ctx, from, of, m.Layers[0], t, o.Progress); err != nil {
		return nil, false, err
	}
	l.dropOld(ctx, t)
	return t, false, nil
}

// receive unpacks the image of a template, and publishes it. The caller holds the name's lock.
func (l *Library) receive(ctx context.Context, from string, of parcel, layer v1.Descriptor, t *store.Template, progress func(done, total int64)) error {
	work := l.workFolder(t.Name)
	if err := removeTree(work); err != nil {
		return fmt.Errorf("delete the rest of an earlier build: %w", err)
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return fmt.Errorf("create a folder to unpack in: %w", err)
	}
	defer removeTree(work)
	if err := roomFor(work, t.SizeBytes, l.opts.MinFreeDisk); errors.Is(err, disk.ErrNoRoom) {
		return bothy.Errorf(bothy.CodeDiskFull, "the host's disk has no room for the %d MB of the template %s", t.SizeBytes>>20, t.Ref()).
			WithHint("Delete unneeded templates and snapshots, or add disk space.").Because(err)
	} else if err != nil {
		return err
	}
	packed, err := of.image(ctx, layer)
	if err != nil {
		return err
	}
	defer packed.Close()
	content, err := apart.Decompress(ctx, io.LimitReader(packed, layer.Size), t.SizeBytes)
	if err != nil {
		return broken(ctx, from, err)
	}
	defer content.Close()
	f, err := os.OpenFile(filepath.Join(work, imageName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("unpack %s: %w", from, err)
	}
	defer f.Close()
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(hash, &meter{ctx: ctx, total: t.SizeBytes, progress: progress}), io.TeeReader(content, f))
	if err == nil && (n != t.SizeBytes || digestPrefix+hex.EncodeToString(hash.Sum(nil)) != t.Digest) {
		err = errors.New("its image is not the one that it describes")
	}
	if err != nil {
		return broken(ctx, from, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("unpack %s: %w", from, err)
	}
	return l.publish(ctx, t, work)
}

// broken is the error for an image that cannot be taken from where it is.
func broken(ctx context.Context, from string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok { // of this host's disk
		return fmt.Errorf("unpack %s: %w", from, err)
	}
	return bothy.Errorf(bothy.CodeTemplateInvalid, "%s is damaged or incomplete: %v", from, err).
		WithHint("Get it again: nothing was changed here.").Because(err)
}

// parcel is an exported template in a file or a registry.
type parcel interface {
	manifest() []byte
	config(context.Context, v1.Descriptor) ([]byte, error)
	image(context.Context, v1.Descriptor) (io.ReadCloser, error)
	Close() error
}

type registryParcel struct {
	ref string
	img v1.Image
	raw []byte
}

func (l *Library) openRegistryParcel(ctx context.Context, ref string) (parcel, error) {
	img, err := l.OpenImage(ctx, bothy.DefaultProject, ref, nil)
	if err != nil {
		return nil, err
	}
	raw, err := img.RawManifest()
	if err != nil {
		return nil, pullError(ref, err)
	}
	return &registryParcel{ref, img, raw}, nil
}

func (p *registryParcel) manifest() []byte { return p.raw }
func (p *registryParcel) Close() error     { return nil }

func (p *registryParcel) config(context.Context, v1.Descriptor) ([]byte, error) {
	return p.img.RawConfigFile() // OpenImage has fetched it within limits
}

func (p *registryParcel) image(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	layer, err := p.img.LayerByDigest(d.Digest)
	if err != nil {
		return nil, pullError(p.ref, err)
	}
	r, err := layer.Compressed()
	if err != nil {
		return nil, pullError(p.ref, err)
	}
	return r, nil
}

const (
	// maxParcelEntries limits the entries of a file. Exported ones have five.
	maxParcelEntries = 32
	maxParcelIndex   = 256 << 10
)

// fileParcel is an OCI layout in a tar. Only the headers are read to open it.
type fileParcel struct {
	name string
	f    *os.File
	at   map[string]section
	raw  []byte
}

type section struct{ offset, size int64 }

func openFileParcel(ctx context.Context, name string) (_ parcel, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, bothy.Errorf(bothy.CodeFileNotFound, "the template cannot be read: %v", err).
			WithHint("Give a file that `bothy template export` wrote, or %sREGISTRY/NAME:TAG.", RegistryPrefix)
	}
	p := &fileParcel{name: name, f: f, at: map[string]section{}}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := p.list(ctx); err != nil {
		return nil, noTemplate(name, err)
	}
	if _, err := p.text(ctx, "oci-layout", maxParcelIndex); err != nil {
		return nil, noTemplate(name, err)
	}
	text, err := p.text(ctx, "index.json", maxParcelIndex)
	if err != nil {
		return nil, noTemplate(name, err)
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(text))
	if err == nil && (len(index.Manifests) != 1 || index.Manifests[0].MediaType != types.OCIManifestSchema1) {
		err = fmt.Errorf("it has %d manifests instead of one", len(index.Manifests))
	}
	if err != nil {
		return nil, noTemplate(name, err)
	}
	if p.raw, err = p.blob(ctx, index.Manifests[0], maxParcelIndex); err != nil {
		return nil, err
	}
	return p, nil
}

// list notes where in the file its entries are.
func (p *fileParcel) list(ctx context.Context) error {
	info, err := p.f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is not a file")
	}
	return bounded.Tar(ctx, p.f, maxParcelEntries, func(h *tar.Header, _ io.Reader) error {
		switch h.Typeflag {
		case tar.TypeDir:
			return nil
		case tar.TypeReg:
		default:
			return errors.New("it is not a file")
		}
		at, err := p.f.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		if h.Size > info.Size()-at {
			return errors.New("its end is missing")
		}
		p.at[path.Clean(h.Name)] = section{at, h.Size}
		return nil
	})
}

func (p *fileParcel) text(ctx context.Context, name string, limit int64) ([]byte, error) {
	at, ok := p.at[name]
	if !ok {
		return nil, fmt.Errorf("it has no %s", name)
	}
	return bounded.ReadAll(ctx, io.NewSectionReader(p.f, at.offset, at.size), limit)
}

// blob reads a small blob and checks its digest.
func (p *fileParcel) blob(ctx context.Context, d v1.Descriptor, limit int64) ([]byte, error) {
	text, err := p.text(ctx, blobPath(d.Digest), limit)
	if err == nil && hashOf(text) != d.Digest {
		err = errors.New("a blob in it does not match its digest")
	}
	if err != nil {
		return nil, noTemplate(p.name, err)
	}
	return text, nil
}

func (p *fileParcel) manifest() []byte { return p.raw }
func (p *fileParcel) Close() error     { return p.f.Close() }

func (p *fileParcel) config(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	return p.blob(ctx, d, maxConfig)
}

func (p *fileParcel) image(_ context.Context, d v1.Descriptor) (io.ReadCloser, error) {
	at, ok := p.at[blobPath(d.Digest)]
	if !ok || at.size != d.Size {
		return nil, noTemplate(p.name, errors.New("its image is missing"))
	}
	return io.NopCloser(io.NewSectionReader(p.f, at.offset, at.size)), nil
}
