package microvm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/microvm/boot"
)

// The places in a tree, which is all that QEMU sees of a host.
const (
	treeQEMU      = "/qemu"
	treeFirmware  = "/firmware"
	treeModules   = "/modules"
	treeKernel    = "/kernel"
	treeInitramfs = "/initramfs"
	treePipes     = "/m"
	treeKVM       = "/dev/kvm"
)

// Where Debian and others keep what belongs to QEMU.
var (
	firmwareDirs = []string{"/usr/share/qemu", "/usr/share/seabios", "/usr/share/qemu-kvm"}
	firmware     = []string{"bios-microvm.bin", "pvh.bin", "linuxboot_dma.bin"}
	moduleGlobs  = []string{"/usr/lib/*/qemu", "/usr/lib/qemu", "/usr/lib64/qemu", "/usr/lib64/qemu-kvm"}
	modules      = []string{"accel-tcg-x86_64.so"}
)

// program is a QEMU on this host.
type program struct {
	path         string
	version      string // such as 7.2.22
	major, minor int
}

// oldest is the first version of QEMU that has a network over streams.
const oldestMajor, oldestMinor = 7, 2

const qemuHint = "Install QEMU 7.2 or newer: sudo apt-get install qemu-system-x86, or run: sudo bothy doctor --fix"

var versionWords = regexp.MustCompile(`version ((\d+)\.(\d+)[.\d]*)`)

// findQEMU asks QEMU for its version.
func findQEMU(path string) (program, error) {
	p := program{}
	var err error
	if p.path, err = exec.LookPath(path); err != nil {
		return p, bothy.Errorf(bothy.CodeEngineMissing, "virtual machines need QEMU, and %s is not installed", filepath.Base(path)).WithHint(qemuHint).Because(err)
	}
	if p.path, err = filepath.EvalSymlinks(p.path); err != nil {
		return p, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, p.path, "--version").Output()
	m := versionWords.FindSubmatch(out)
	if err != nil || m == nil {
		return p, bothy.Errorf(bothy.CodeEngineMissing, "%s does not say which version of QEMU it is", p.path).WithHint(qemuHint).Because(err)
	}
	p.version = string(m[1])
	p.major, _ = strconv.Atoi(string(m[2]))
	p.minor, _ = strconv.Atoi(string(m[3]))
	if p.major < oldestMajor || p.major == oldestMajor && p.minor < oldestMinor {
		return p, bothy.Errorf(bothy.CodeEngineMissing, "%s is QEMU %s, which is too old for virtual machines", p.path, p.version).WithHint(qemuHint)
	}
	return p, nil
}

// source is one file of a tree.
type source struct{ from, to string }

// makeTree returns a folder with all that QEMU needs, made once for each version of
// what is in it, and the environment to run it in.
func makeTree(dir string, p program, image boot.Image) (tree string, env []string, err error) {
	files, env, err := treeFiles(p, image)
	if err != nil {
		return "", nil, err
	}
	h := sha256.New()
	for _, f := range files {
		st, err := os.Stat(f.from)
		if err != nil {
			return "", nil, err
		}
		fmt.Fprintln(h, f.from, f.to, st.Size(), st.ModTime().UnixNano())
	}
	tree = filepath.Join(dir, "tree-"+hex.EncodeToString(h.Sum(nil)[:8]))
	if _, err := os.Stat(tree); err == nil {
		return tree, env, nil
	}
	temp, err := os.MkdirTemp(dir, ".new-")
	if err != nil {
		return "", nil, err
	}
	defer os.RemoveAll(temp)
	if err := os.Chmod(temp, 0o755); err != nil {
		return "", nil, err
	}
	if err := fillTree(temp, files); err != nil {
		return "", nil, err
	}
	if err := os.Rename(temp, tree); err != nil && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
		return "", nil, err
	}
	return tree, env, nil
}

// keepModules returns a copy of the image of the kernel's modules, which is kept as long
// as the engine's folder, or an empty path where there are none. It is no part of a
// tree: machines get it as an open file.
func keepModules(dir string, image boot.Image) (string, error) {
	if image.Modules == "" {
		return "", nil
	}
	kept := filepath.Join(dir, "modules-"+image.Digest[:16])
	if isFile(kept) {
		return kept, nil
	}
	temp, err := os.MkdirTemp(dir, ".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	if err := placeFile(image.Modules, filepath.Join(temp, "modules")); err != nil {
		return "", err
	}
	return kept, os.Rename(filepath.Join(temp, "modules"), kept)
}

func fillTree(dir string, files []source) error {
	for _, place := range []string{treePipes, "/dev", "/tmp"} {
		if err := os.MkdirAll(dir+place, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(dir+treeKVM, nil, 0o644); err != nil {
		return err
	}
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(dir+f.to), 0o755); err != nil {
			return err
		}
		if err := placeFile(f.from, dir+f.to); err != nil {
			return fmt.Errorf("copy %s for QEMU: %w", f.from, err)
		}
	}
	return nil
}

// placeFile copies a file that anybody may read.
func placeFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	st, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644|st.Mode()&0o111)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// libraryLine is one of what the loader lists: a name, and where it is.
var libraryLine = regexp.MustCompile(`(?m)^\s*(?:\S+ => )?(/\S+) \(0x`)

// treeFiles lists QEMU, its libraries, firmware and modules, and what it boots.
func treeFiles(p program, image boot.Image) (files []source, env []string, err error) {
	loader := "/lib64/ld-linux-x86-64.so.2"
	out, err := exec.Command(loader, "--list", p.path).Output()
	if err != nil {
		return nil, nil, fmt.Errorf("list the libraries of QEMU: %w", err)
	}
	files = []source{{p.path, treeQEMU}, {image.Kernel, treeKernel}, {image.Initramfs, treeInitramfs}, {loader, loader}}
	var dirs []string
	for _, m := range libraryLine.FindAllStringSubmatch(string(out), -1) {
		if m[1] == loader {
			continue
		}
		files = append(files, source{m[1], m[1]})
		if d := filepath.Dir(m[1]); !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	for _, name := range firmware {
		i := slices.IndexFunc(firmwareDirs, func(d string) bool { return isFile(filepath.Join(d, name)) })
		if i < 0 {
			return nil, nil, bothy.Errorf(bothy.CodeEngineMissing, "QEMU's firmware %s is not installed", name).WithHint(qemuHint)
		}
		files = append(files, source{filepath.Join(firmwareDirs[i], name), filepath.Join(treeFirmware, name)})
	}
	for _, glob := range moduleGlobs {
		for _, name := range modules {
			found, _ := filepath.Glob(filepath.Join(glob, name))
			if len(found) > 0 {
				files = append(files, source{found[0], filepath.Join(treeModules, name)})
			}
		}
	}
	return files, []string{"LD_LIBRARY_PATH=" + strings.Join(dirs, ":"), "QEMU_MODULE_DIR=" + treeModules, "MALLOC_ARENA_MAX=1", "MALLOC_TRIM_THRESHOLD_=131072", "MALLOC_MMAP_THRESHOLD_=65536"}, nil
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}
