package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/bothy-dev/bothy/bench"
	filetree "github.com/bothy-dev/bothy/template/tree"
)

// Build is a subject: Docker's build, by BuildKit, without a network.
func (d *Docker) Build(dir string) (bench.Subject, error) {
	unpack := exec.Command("tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(bench.BuildContext())
	if out, err := unpack.CombinedOutput(); err != nil {
		return bench.Subject{}, fmt.Errorf("unpack the context: %w: %s", err, out)
	}
	file := dir + ".Dockerfile"
	if err := os.WriteFile(file, []byte(bench.Dockerfile), 0o600); err != nil {
		return bench.Subject{}, err
	}
	return bench.BuildOf("docker", func(ctx context.Context, last string, clean bool) error {
		args := []string{"-H", "unix://" + d.socket, "build", "--network=none", "--build-arg", "BASE=" + dockerImage, "--build-arg", "LAST=" + last, "-f", file, "-t", "bothy-bench-built"}
		if clean {
			args = append(args, "--no-cache")
		}
		cmd := exec.CommandContext(ctx, d.cli, append(args, dir)...)
		cmd.Env = append(os.Environ(), "DOCKER_BUILDKIT=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("docker build: %w: %s", err, out)
		}
		return nil
	}), nil
}

const loaded = "bothy-bench-loaded:1"

// Load is a subject: docker load of an image that Docker does not have.
func (d *Docker) Load(file string) bench.Subject {
	return bench.Subject{Name: "docker", Once: func(_ context.Context, record bench.Record) error {
		begun := time.Now()
		_, err := d.Output("load", "-i", file)
		record(bench.ImageImport, bench.Since(begun))
		if err != nil {
			return err
		}
		_, err = d.Output("rmi", loaded)
		return err
	}}
}

// ImageFile writes an image with the template's files, as docker save would, and returns its
// path and the size of the files in bytes.
func (l *Lab) ImageFile() (path string, size int64, err error) {
	image, err := l.Image()
	if err != nil {
		return "", 0, err
	}
	files, err := filetree.Read(context.Background(), image)
	if err != nil {
		return "", 0, err
	}
	layer := filepath.Join(l.Dir, "layer.tar")
	f, err := os.Create(layer)
	if err != nil {
		return "", 0, err
	}
	if err := errors.Join(files.WriteLayer(filetree.New(time.Unix(0, 0)), f), f.Close()); err != nil {
		return "", 0, err
	}
	defer os.Remove(layer)
	info, err := os.Stat(layer)
	if err != nil {
		return "", 0, err
	}
	one, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return os.Open(layer) })
	if err != nil {
		return "", 0, err
	}
	c, err := empty.Image.ConfigFile()
	if err != nil {
		return "", 0, err
	}
	c = c.DeepCopy()
	c.OS, c.Architecture = "linux", runtime.GOARCH
	img, err := mutate.ConfigFile(empty.Image, c)
	if err == nil {
		img, err = mutate.AppendLayers(img, one)
	}
	if err != nil {
		return "", 0, err
	}
	tag, err := name.NewTag(loaded)
	if err != nil {
		return "", 0, err
	}
	path = filepath.Join(l.Dir, "image.tar")
	return path, info.Size(), tarball.WriteToFile(path, tag, img)
}
