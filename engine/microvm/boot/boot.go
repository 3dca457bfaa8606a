// Package boot makes what a virtual machine boots: a kernel, as an ELF file that
// a VMM loads without a boot loader, and an initramfs with the few modules that
// the machine needs and its first program. The kernel is Debian's cloud kernel,
// fetched by apt, or one that the operator names. Everything is kept in a folder
// of the server, by version, and made only once.
//
// engine/microvm and server use this package.
package boot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
)

// Image is what one kind of machine boots.
type Image struct {
	// Kernel is the path of an uncompressed ELF kernel with an entry for PVH, and
	// Initramfs that of an uncompressed archive.
	Kernel    string `json:"-"`
	Initramfs string `json:"-"`
	// Modules is the path of an EROFS image of all the kernel's modules; empty when
	// there are none next to it.
	Modules string `json:"-"`
	// Version is the kernel's version string, such as 6.1.0-40-cloud-amd64.
	Version string `json:"version"`
	// Source says where the kernel is from: the name of a Debian package, or the
	// path that the operator gave.
	Source string `json:"source"`
	// Digest is the SHA-256 over the kernel, the initramfs and the modules, in hex.
	Digest string `json:"digest"`
}

// Options say what to boot.
type Options struct {
	// Init is the path of the static program that is started first.
	Init string
	// Kernel, if not empty, is the operator's own: the path of a Debian package, of
	// a bzImage, or of an ELF kernel. Otherwise it is Debian's for clouds.
	Kernel string
	// Modules is the folder of the modules of a Kernel that is not a package.
	// Empty means /lib/modules/VERSION; modules not found there must be built
	// in.
	Modules string
	// Update asks apt for the newest package even if there is a kernel already.
	Update bool
	// Progress, if not nil, is called with steps that take long.
	Progress func(string)
}

func (o Options) progress(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}

// fixHint is what to do when there is no kernel.
const fixHint = "Run: sudo bothy doctor --fix"

var errNone = errors.New("none has been fetched yet")

// current is the file that says which folder has Debian's kernel.
const current = "current"

// Prepare returns the image, fetching and making what is missing. It may be
// called by several processes at once. Errors have CodeEngineMissing.
func Prepare(ctx context.Context, dir string, o Options) (Image, error) {
	if o.Kernel != "" {
		return Find(ctx, dir, o)
	}
	unlock, err := lock(dir)
	if err != nil {
		return Image{}, unavailable(err)
	}
	defer unlock()
	k, missing := currentKernel(dir)
	if missing != nil || o.Update {
		newest, err := debianKernel(ctx, dir, k, o)
		switch {
		case err == nil:
			k = newest
		case missing != nil:
			return Image{}, unavailable(err)
		default:
			o.progress("the kernel stays the one that is there: %v", err)
		}
	}
	return finish(dir, k, o)
}

// Find returns the image without fetching anything, making what can be made
// from existing files. It returns CodeEngineMissing if there is no kernel.
func Find(ctx context.Context, dir string, o Options) (Image, error) {
	if !exists(dir) && o.Kernel == "" {
		return Image{}, unavailable(errNone)
	}
	unlock, err := lock(dir)
	if err != nil {
		return Image{}, unavailable(err)
	}
	defer unlock()
	var k kernel
	if o.Kernel != "" {
		k, err = ownKernel(ctx, dir, o)
	} else {
		k, err = currentKernel(dir)
	}
	if err != nil {
		return Image{}, unavailable(err)
	}
	return finish(dir, k, o)
}

// keptFor is how long unused files are kept. Engines copy what they boot, so that snapshots can
// be restored with it, and ask for it at each of their starts: it must exist only from the
// answer until the copy. Servers share the folder, and what is missing is made again, although a
// kernel takes more effort. Leftovers of a killed process may be old.
var keptFor = map[string]time.Duration{
	"image-*": time.Hour, "kernel-*": 24 * time.Hour, ".new-*": 24 * time.Hour, ".fetch-*": 24 * time.Hour,
}

// used marks a file as recently used.
func used(dirs ...string) {
	now := time.Now()
	for _, dir := range dirs {
		_ = os.Chtimes(dir, now, now)
	}
}

// prune removes what has not been used for a while, except Debian's kernel that was fetched
// last. The folder is locked.
func prune(dir string) {
	last, _ := currentKernel(dir)
	for pattern, kept := range keptFor {
		found, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && path != last.dir && time.Since(info.ModTime()) > kept {
				_ = os.RemoveAll(path)
			}
		}
	}
}

func finish(dir string, k kernel, o Options) (Image, error) {
	used(k.dir)
	image, err := imageOf(dir, k, o)
	if err != nil {
		return Image{}, unavailable(err)
	}
	prune(dir)
	return image, nil
}

// unavailable keeps an error that has a hint of its own.
func unavailable(err error) error {
	var e *bothy.Error
	if errors.As(err, &e) {
		return err
	}
	return bothy.Errorf(bothy.CodeEngineMissing, "there is no kernel for virtual machines: %v", err).WithHint(fixHint).Because(err)
}

// lock makes dir and locks it, so that nothing is fetched or made twice.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// kernel is a folder with a kernel and those of its modules that a machine
// needs. Its name contains the digest of its inputs.
type kernel struct {
	dir string

	Version string `json:"version"`
	Source  string `json:"source"`
	Size    int64  `json:"size"`
	// Modules are files next to the kernel, in the order in which to load them.
	Modules []string `json:"modules"`
}

func (k kernel) path() string { return filepath.Join(k.dir, "vmlinux") }

// modules is the image of all modules, or empty.
func (k kernel) modules() string {
	if path := filepath.Join(k.dir, modulesName); exists(path) {
		return path
	}
	return ""
}

// currentKernel is Debian's kernel that was fetched last.
func currentKernel(dir string) (kernel, error) {
	name, err := os.ReadFile(filepath.Join(dir, current))
	if err != nil {
		return kernel{}, errNone
	}
	return readKernel(filepath.Join(dir, filepath.Base(strings.TrimSpace(string(name)))))
}

// readKernel reads a folder that publishKernel made.
func readKernel(dir string) (kernel, error) {
	k := kernel{dir: dir}
	data, err := os.ReadFile(filepath.Join(dir, "kernel.json"))
	if err != nil {
		return k, err
	}
	if err := json.Unmarshal(data, &k); err != nil {
		return k, fmt.Errorf("read %s: %w", dir, err)
	}
	if info, err := os.Stat(k.path()); err != nil || info.Size() != k.Size {
		return k, fmt.Errorf("%s is not whole", dir)
	}
	return k, nil
}

// unpacked is a kernel in memory.
type unpacked struct {
	image   []byte
	version string
	source  string
	modules []module
	all     *moduleSet
}

// publishKernel writes a folder atomically.
func publishKernel(ctx context.Context, dir, name string, u unpacked, o Options) (kernel, error) {
	k := kernel{dir: filepath.Join(dir, name), Version: u.version, Source: u.source, Size: int64(len(u.image))}
	tmp, err := os.MkdirTemp(dir, ".new-")
	if err != nil {
		return k, err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return k, err
	}
	if err := write(filepath.Join(tmp, "vmlinux"), u.image); err != nil {
		return k, err
	}
	for _, m := range u.modules {
		if err := write(filepath.Join(tmp, m.file()), m.data); err != nil {
			return k, err
		}
		k.Modules = append(k.Modules, m.file())
	}
	if err := writeModules(ctx, u.all, u.version, filepath.Join(tmp, modulesName)); err != nil {
		if ctx.Err() != nil {
			return k, err
		}
		o.progress("virtual machines have only the modules that they boot with: %v; `bothy doctor --fix` installs what is missing", err)
	}
	data, err := json.MarshalIndent(k, "", "  ")
	if err != nil {
		return k, err
	}
	if err := write(filepath.Join(tmp, "kernel.json"), data); err != nil {
		return k, err
	}
	// An incomplete one is replaced.
	if err := os.RemoveAll(k.dir); err != nil {
		return k, err
	}
	return k, os.Rename(tmp, k.dir)
}

// ownKernel reads the kernel that the operator names.
func ownKernel(ctx context.Context, dir string, o Options) (kernel, error) {
	digest, err := fileDigest(o.Kernel)
	if err != nil {
		return kernel{}, bothy.Errorf(bothy.CodeEngineMissing, "the kernel %s cannot be read", o.Kernel).
			WithHint("Correct `engine.microvm.kernel` in the settings.").Because(err)
	}
	// Modules are read again only with another kernel: they belong to it.
	key := sha256.Sum256([]byte(digest + "\n" + o.Modules))
	name := "kernel-" + hex.EncodeToString(key[:6])
	if k, err := readKernel(filepath.Join(dir, name)); err == nil && !(o.Update && k.modules() == "") {
		return k, nil
	}
	o.progress("unpack %s", o.Kernel)
	u, err := openKernel(o.Kernel, o.Modules)
	if err != nil {
		return kernel{}, bothy.Errorf(bothy.CodeEngineMissing, "%s cannot be used as the kernel of virtual machines: %v", o.Kernel, err).
			WithHint("Name a Debian kernel package, a bzImage or an ELF kernel for x86-64 that was built with CONFIG_PVH.").Because(err)
	}
	u.source = o.Kernel
	return publishKernel(ctx, dir, name, u, o)
}

// openKernel unpacks a package or a bare kernel.
func openKernel(path, modules string) (unpacked, error) {
	f, err := os.Open(path)
	if err != nil {
		return unpacked{}, err
	}
	defer f.Close()
	magic := make([]byte, len(arMagic))
	if _, err := io.ReadFull(f, magic); err != nil {
		return unpacked{}, errors.New("it is too short")
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return unpacked{}, err
	}
	if string(magic) == arMagic {
		return unpackDeb(f)
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return unpacked{}, err
	}
	u := unpacked{}
	if u.image, u.version, err = openImage(data); err != nil {
		return u, err
	}
	if modules == "" {
		modules = filepath.Join("/lib/modules", u.version)
	}
	if u.all, err = readModules(modules); err != nil {
		return u, err
	}
	u.modules, err = u.all.inOrder()
	return u, err
}

// imageOf makes the initramfs for a kernel and a first program, unless it exists.
func imageOf(dir string, k kernel, o Options) (Image, error) {
	image := Image{Kernel: k.path(), Modules: k.modules(), Version: k.Version, Source: k.Source}
	init, err := os.ReadFile(o.Init)
	if err != nil {
		return image, bothy.Errorf(bothy.CodeEngineMissing, "the first program of virtual machines cannot be read").
			WithHint("Run `make build`, and use bin/bothy.").Because(err)
	}
	sum := sha256.Sum256(init)
	key := sha256.Sum256([]byte(filepath.Base(k.dir) + "\n" + hex.EncodeToString(sum[:]) + "\n" + filepath.Base(image.Modules)))
	to := filepath.Join(dir, "image-"+hex.EncodeToString(key[:6]))
	image.Initramfs = filepath.Join(to, "initramfs")
	if data, err := os.ReadFile(filepath.Join(to, "image.json")); err == nil {
		if json.Unmarshal(data, &image) == nil && exists(image.Initramfs) {
			used(to)
			return image, nil
		}
	}
	tmp, err := os.MkdirTemp(dir, ".new-")
	if err != nil {
		return image, err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return image, err
	}
	archive, err := initramfs(k, init)
	if err != nil {
		return image, err
	}
	if err := write(filepath.Join(tmp, "initramfs"), archive); err != nil {
		return image, err
	}
	parts := []string{k.path(), filepath.Join(tmp, "initramfs")}
	if image.Modules != "" {
		parts = append(parts, image.Modules)
	}
	if image.Digest, err = fileDigest(parts...); err != nil {
		return image, err
	}
	data, err := json.MarshalIndent(image, "", "  ")
	if err != nil {
		return image, err
	}
	if err := write(filepath.Join(tmp, "image.json"), data); err != nil {
		return image, err
	}
	if err := os.RemoveAll(to); err != nil {
		return image, err
	}
	return image, os.Rename(tmp, to)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// write makes a file that is on disk when it returns.
func write(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// fileDigest is the SHA-256 over files one after the other, in hex.
func fileDigest(paths ...string) (string, error) {
	h := sha256.New()
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(h, f)
		f.Close()
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
