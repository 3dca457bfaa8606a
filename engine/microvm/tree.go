package microvm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/builds"
	"github.com/bothy-dev/bothy/engine/microvm/boot"
)

// The places in a tree, which is all that QEMU sees of the host.
const (
	treeQEMU      = "/qemu"
	treeFirmware  = "/firmware"
	treeModules   = "/modules"
	treeKernel    = "/kernel"
	treeInitramfs = "/initramfs"
	treePipes     = "/m"
	treeKVM       = "/dev/kvm"
)

// Where Debian and others install QEMU's files.
var (
	firmwareDirs = []string{"/usr/share/qemu", "/usr/share/seabios", "/usr/share/qemu-kvm"}
	firmware     = []string{"bios-microvm.bin", "pvh.bin", "linuxboot_dma.bin"}
	moduleGlobs  = []string{"/usr/lib/*/qemu", "/usr/lib/qemu", "/usr/lib64/qemu", "/usr/lib64/qemu-kvm"}
	modules      = []string{"accel-tcg-x86_64.so"}
)

// program is a QEMU installed on this host.
type program struct {
	path         string
	version      string // such as 7.2.22
	major, minor int
}

// oldest is the first version of QEMU with a stream network.
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

// libraryLine matches a line of the loader's list: a name and a path.
var libraryLine = regexp.MustCompile(`(?m)^\s*(?:\S+ => )?(/\S+) \(0x`)

// treeDirs are the empty folders of a tree.
var treeDirs = []string{treePipes, "/tmp"}

// treeFiles lists QEMU, its libraries, firmware and modules, and what it boots.
func treeFiles(p program, image boot.Image) (files []builds.Source, env []string, err error) {
	at := func(from, to string) builds.Source { return builds.Source{From: from, Place: to} }
	loader := "/lib64/ld-linux-x86-64.so.2"
	out, err := exec.Command(loader, "--list", p.path).Output()
	if err != nil {
		return nil, nil, fmt.Errorf("list the libraries of QEMU: %w", err)
	}
	files = []builds.Source{
		at(p.path, treeQEMU), at(image.Kernel, treeKernel), at(image.Initramfs, treeInitramfs), at(loader, loader),
		at(os.DevNull, treeKVM), // an empty file, over which the device is mounted
	}
	var dirs []string
	for _, m := range libraryLine.FindAllStringSubmatch(string(out), -1) {
		if m[1] == loader {
			continue
		}
		files = append(files, at(m[1], m[1]))
		if d := filepath.Dir(m[1]); !slices.Contains(dirs, d) {
			dirs = append(dirs, d)
		}
	}
	for _, name := range firmware {
		i := slices.IndexFunc(firmwareDirs, func(d string) bool { return isFile(filepath.Join(d, name)) })
		if i < 0 {
			return nil, nil, bothy.Errorf(bothy.CodeEngineMissing, "QEMU's firmware %s is not installed", name).WithHint(qemuHint)
		}
		files = append(files, at(filepath.Join(firmwareDirs[i], name), filepath.Join(treeFirmware, name)))
	}
	for _, glob := range moduleGlobs {
		for _, name := range modules {
			found, _ := filepath.Glob(filepath.Join(glob, name))
			if len(found) > 0 {
				files = append(files, at(found[0], filepath.Join(treeModules, name)))
			}
		}
	}
	return files, []string{"LD_LIBRARY_PATH=" + strings.Join(dirs, ":"), "QEMU_MODULE_DIR=" + treeModules, "MALLOC_ARENA_MAX=1", "MALLOC_TRIM_THRESHOLD_=131072", "MALLOC_MMAP_THRESHOLD_=65536"}, nil
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}
