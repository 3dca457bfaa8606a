package boot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// modulesName is the image of all of a kernel's modules, next to the kernel.
const modulesName = "modules.erofs"

// writeModules makes the image of a kernel's modules, as they would lie in
// /lib/modules/VERSION, with the indexes of depmod. The machine mounts it, so that
// modules not needed for booting can be loaded on request.
func writeModules(ctx context.Context, set *moduleSet, version, to string) error {
	if len(set.files) == 0 {
		return nil
	}
	if version == "" || strings.ContainsAny(version, "/\x00") || version[0] == '.' {
		return fmt.Errorf("%q cannot be the version of a kernel", version)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(to), ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	root := filepath.Join(tmp, "lib/modules", version)
	if err := set.unpackTo(root); err != nil {
		return err
	}
	if err := run(ctx, "depmod", "-b", tmp, version); err != nil {
		return err
	}
	// The same modules make the same bytes: a snapshot depends on them.
	return run(ctx, "mkfs.erofs", "-zlz4", "-T0", "-U00000000-0000-0000-0000-000000000000", "--all-root", "-E", "noinline_data", "--quiet", to, root)
}

func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, lastLine(string(out)))
	}
	return nil
}

// unpackTo writes all modules below root, uncompressed, and what depmod reads
// next to them.
func (s *moduleSet) unpackTo(root string) error {
	for name, read := range s.files {
		data, err := read()
		if err == nil {
			data, err = unpackModule(s.paths[name], data)
		}
		if err != nil {
			return fmt.Errorf("unpack the module %s: %w", name, err)
		}
		base, _, _ := strings.Cut(filepath.Base(s.paths[name]), ".ko")
		if err := writeBelow(root, filepath.Join("kernel", s.folder(name), base+".ko"), data); err != nil {
			return err
		}
	}
	for name, data := range s.lists {
		if err := writeBelow(root, name, data); err != nil {
			return err
		}
	}
	return nil
}

// folder is where a module lies below the folder kernel; at its top for one from
// elsewhere.
func (s *moduleSet) folder(name string) string {
	_, below, ok := strings.Cut(s.paths[name], "/kernel/")
	if !ok {
		return ""
	}
	return filepath.Dir(filepath.Clean("/" + below))
}

func writeBelow(root, name string, data []byte) error {
	to := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}
