// Command pack puts the guest, the sentry and the first program of virtual machines
// into the folder that package embedded compiles into bothy. Only the Makefile runs it.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bothy-dev/bothy/internal/embedded"
	"github.com/klauspost/compress/zstd"
)

func main() {
	guest := flag.String("guest", "", "the guest `program`")
	sentry := flag.String("sentry", "", "the sentry `program`")
	vminit := flag.String("vminit", "", "the first `program` of virtual machines")
	out := flag.String("o", "internal/embedded/bin", "the `folder` to write to")
	flag.Parse()
	if err := pack(*guest, *sentry, *vminit, *out); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

func pack(guest, sentry, vminit, out string) error {
	dir, err := os.MkdirTemp("", "bothy-pack-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	image := filepath.Join(dir, "guest.erofs")
	if err := guestImage(guest, image); err != nil {
		return err
	}
	var index embedded.Index
	if index.Guest, err = compress(image, filepath.Join(out, "guest.erofs.zst")); err != nil {
		return err
	}
	if index.Sentry, err = compress(sentry, filepath.Join(out, "sentry.zst")); err != nil {
		return err
	}
	if index.Vminit, err = compress(vminit, filepath.Join(out, "vminit.zst")); err != nil {
		return err
	}
	data, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return err
	}
	return write(filepath.Join(out, "index.json"), append(data, '\n'))
}

// guestImage makes the image that is mounted into every sandbox. Its bytes depend on the guest
// alone, so the digest identifies the guest.
func guestImage(guest, image string) error {
	root := filepath.Join(filepath.Dir(image), "guest")
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	data, err := os.ReadFile(guest)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "guest"), data, 0o755); err != nil {
		return err
	}
	tool, err := exec.LookPath("mkfs.erofs")
	if err != nil {
		return errors.New("mkfs.erofs is missing: apt-get install erofs-utils")
	}
	out, err := exec.Command(tool, "--quiet", "-E", "noinline_data", "-T0", "--all-root",
		"-U", "00000000-0000-0000-0000-000000000000", image, root).CombinedOutput()
	if err != nil {
		return fmt.Errorf("mkfs.erofs: %w: %s", err, out)
	}
	return nil
}

func compress(from, to string) (embedded.Part, error) {
	data, err := os.ReadFile(from)
	if err != nil {
		return embedded.Part{}, err
	}
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return embedded.Part{}, err
	}
	sum := sha256.Sum256(data)
	part := embedded.Part{Digest: hex.EncodeToString(sum[:]), Size: int64(len(data))}
	return part, write(to, z.EncodeAll(data, nil))
}

// write replaces a file only if its content changes, which avoids recompiling.
func write(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	tmp := path + ".new"
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}
