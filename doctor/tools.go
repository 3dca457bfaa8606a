package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// tool is a program that the server runs to build templates. Sandboxes do not need it.
type tool struct{ name, pkg, why string }

var tools = []tool{
	{"mkfs.erofs", "erofs-utils", "writes template images"},
	{"mmdebstrap", "mmdebstrap", "builds the built-in templates"},
}

// engineTools are the programs that only the engine of virtual machines runs.
var engineTools = []tool{
	{"qemu-system-x86_64", "qemu-system-x86", "runs virtual machines"},
	{"mkfs.ext4", "e2fsprogs", "makes their disks"},
	{"depmod", "kmod", "lists the modules of their kernel"},
}

// MissingPackages lists the Debian packages of the tools that are missing.
func (h *Host) MissingPackages() []string { return packagesOf(h.missingOf(tools)) }

// MissingEnginePackages lists the Debian packages that are missing for virtual
// machines. Nothing else needs them.
func (h *Host) MissingEnginePackages() []string { return packagesOf(h.missingOf(engineTools)) }

func packagesOf(missing []tool) []string {
	var list []string
	for _, t := range missing {
		list = append(list, t.pkg)
	}
	return list
}

func (h *Host) missingTools() []tool { return h.missingOf(tools) }

func (h *Host) missingOf(list []tool) []tool {
	return slices.DeleteFunc(slices.Clone(list), func(t tool) bool {
		_, err := h.lookPath(t.name)
		return err == nil
	})
}

func (h *Host) checkTools(ctx context.Context) Result {
	if missing := h.missingTools(); len(missing) > 0 {
		names := make([]string, len(missing))
		for i, t := range missing {
			names[i] = fmt.Sprintf("%s (%s)", t.name, t.why)
		}
		detail, fix := fmt.Sprintf("Missing: %s.", strings.Join(names, ", ")), "Run: "+InstallCommand(h.MissingPackages())
		if len(templateNames(h.Templates)) > 0 {
			return warn(detail, fix)
		}
		return fail(detail, fix)
	}
	if err := h.makeImage(ctx); err != nil {
		return fail(fmt.Sprintf("mkfs.erofs cannot make an image that sandboxes can use: %v.", err), "Install erofs-utils 1.5 or newer.")
	}
	return ok("mkfs.erofs and mmdebstrap are there, and an image could be made.")
}

// InstallCommand returns the command line that installs packages.
func InstallCommand(packages []string) string {
	return "apt-get install -y --no-install-recommends " + strings.Join(packages, " ")
}

// makeImage makes a small image with the one option that old versions lack.
func (h *Host) makeImage(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "bothy-doctor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	path, err := h.lookPath("mkfs.erofs")
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, path, "-E", "noinline_data", filepath.Join(dir, "image"), root).CombinedOutput()
	if err != nil {
		last := strings.TrimSpace(string(out))
		return fmt.Errorf("%w (%s)", err, last[strings.LastIndexByte(last, '\n')+1:])
	}
	return nil
}
