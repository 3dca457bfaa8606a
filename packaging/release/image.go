package main

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// image writes the container image as an OCI layout in a tar, which docker load reads too: base, which is the root file system of a Debian with
// what a server needs, and the program in /usr/local. It is what packaging/Dockerfile makes.
func (r release) image(base string, list []file) error {
	work, err := os.MkdirTemp("", "bothy-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	own := filepath.Join(work, "own.tar")
	if err := r.ownLayer(own, list); err != nil {
		return err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, layer := range []struct{ from, by string }{{base, "mmdebstrap"}, {own, "bothy " + r.version}} {
		l, err := tarball.LayerFromFile(layer.from, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return err
		}
		img, err = mutate.Append(img, mutate.Addendum{Layer: l, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: layer.by}})
		if err != nil {
			return err
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", "amd64", v1.Time{Time: r.time}
	config.Config = v1.Config{
		Entrypoint: []string{"bothy"}, Cmd: []string{"serve"},
		Env:    []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Labels: map[string]string{"org.opencontainers.image.version": r.version, "org.opencontainers.image.revision": r.commit, "org.opencontainers.image.licenses": "Apache-2.0"},
	}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return err
	}
	folder := filepath.Join(work, "layout")
	to, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	err = to.AppendImage(img, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: "amd64"}), layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": tag(r.version), "io.containerd.image.name": "docker.io/library/bothy:" + tag(r.version),
	}))
	if err != nil {
		return err
	}
	if err := r.forDocker(folder, img); err != nil {
		return err
	}
	return r.archive(filepath.Join(r.out, fmt.Sprintf("bothy-%s-linux-amd64.oci.tar", r.version)), func(w *tar.Writer) error {
		// In the order of names, as WalkDir goes.
		return filepath.WalkDir(folder, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			rel, err := filepath.Rel(folder, name)
			if err != nil {
				return err
			}
			return r.add(w, name, filepath.ToSlash(rel), 0o644)
		})
	})
}

// forDocker adds the file that docker load reads.
func (r release) forDocker(folder string, img v1.Image) error {
	m, err := img.Manifest()
	if err != nil {
		return err
	}
	blob := func(d v1.Descriptor) string { return path.Join("blobs", d.Digest.Algorithm, d.Digest.Hex) }
	list := tarball.Manifest{{Config: blob(m.Config), RepoTags: []string{"bothy:" + tag(r.version)}}}
	for _, l := range m.Layers {
		list[0].Layers = append(list[0].Layers, blob(l))
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "manifest.json"), text, 0o644)
}

// tag is a version as the tag of an image.
func tag(version string) string { return strings.ReplaceAll(version, "+", "-") }

// ownLayer writes what is Bothy's in the image. Nobody reads manual pages there.
func (r release) ownLayer(to string, list []file) error {
	return r.archive(to, func(w *tar.Writer) error {
		made := map[string]bool{"usr/local": true, "usr/local/bin": true, "usr/local/share": true} // Debian's
		for _, f := range list {
			if !strings.HasPrefix(f.to, "bin/") && !strings.HasPrefix(f.to, "share/bothy/") && !strings.HasPrefix(f.to, "share/doc/") {
				continue
			}
			name := path.Join("usr/local", f.to)
			var missing []string
			for dir := path.Dir(name); !made[dir]; dir = path.Dir(dir) {
				made[dir] = true
				missing = append(missing, dir)
			}
			slices.Reverse(missing)
			for _, dir := range missing {
				if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: r.time, Format: tar.FormatUSTAR}); err != nil {
					return err
				}
			}
			if err := r.add(w, f.from, name, f.mode); err != nil {
				return err
			}
		}
		// The server's state: docker run -v bothy:/var/lib/bothy has its mode from here.
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "var/lib/bothy/", Mode: 0o711, ModTime: r.time, Format: tar.FormatUSTAR})
	})
}

// archive writes a tar.
func (r release) archive(to string, fill func(*tar.Writer) error) error {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	w := tar.NewWriter(out)
	if err := fill(w); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return out.Close()
}

// add copies a file into a tar, as root's, with the release's time.
func (r release) add(w *tar.Writer, from, name string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: int64(mode), Size: info.Size(), ModTime: r.time, Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}
