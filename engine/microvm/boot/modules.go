package boot

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ulikunitz/xz"

	"github.com/bothy-dev/bothy/engine/microvm/vm"
)

// needed are the modules that a machine requires, built in or loadable, and useful those that
// are loaded if they exist.
var (
	needed = []string{"virtio_mmio", "virtio_blk", "virtio_net", "virtio_console", "erofs", "overlay", "ext4"}
	useful = []string{"virtio_rng", "virtio_balloon", "vmgenid", "crc32c_generic"}
)

// module is one file, unpacked.
type module struct {
	name string
	data []byte
}

func (m module) file() string { return m.name + ".ko" }

// moduleSet is the modules of a kernel.
type moduleSet struct {
	files   map[string]func() ([]byte, error) // by name, still packed
	paths   map[string]string
	builtin map[string]bool
	lists   map[string][]byte // modules.builtin and the like, which depmod reads
	// known is false if nothing says what is built in.
	known bool
}

func newModuleSet() *moduleSet {
	return &moduleSet{files: map[string]func() ([]byte, error){}, paths: map[string]string{}, builtin: map[string]bool{}, lists: map[string][]byte{}}
}

// moduleName returns the kernel's name for the module in a file, or "" if it is none.
func moduleName(file string) string {
	name, rest, ok := strings.Cut(path.Base(file), ".ko")
	if !ok || !slices.Contains([]string{"", ".xz", ".gz", ".zst"}, rest) {
		return ""
	}
	return strings.ReplaceAll(name, "-", "_")
}

// add records one file below lib/modules/VERSION.
func (s *moduleSet) add(file string, read func() ([]byte, error)) error {
	switch base := path.Base(file); base {
	case "modules.order", "modules.builtin.modinfo":
		data, err := read()
		s.lists[base] = data
		return err
	case "modules.builtin":
		data, err := read()
		if err != nil {
			return err
		}
		s.known, s.lists[base] = true, data
		for line := range strings.Lines(string(data)) {
			if name := moduleName(strings.TrimSpace(line)); name != "" {
				s.builtin[name] = true
			}
		}
		return nil
	}
	if name := moduleName(file); name != "" {
		s.files[name], s.paths[name] = read, file
	}
	return nil
}

// readModules records a folder's modules. A folder that does not exist has none.
func readModules(dir string) (*moduleSet, error) {
	s := newModuleSet()
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return s.add(file, func() ([]byte, error) { return os.ReadFile(file) })
	})
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	return s, err
}

// inOrder returns the modules that a machine needs, each after its
// dependencies.
func (s *moduleSet) inOrder() ([]module, error) {
	var list []module
	done := map[string]bool{}
	var visit func(name string, must bool) error
	visit = func(name string, must bool) error {
		if done[name] || s.builtin[name] {
			return nil
		}
		read, ok := s.files[name]
		if !ok {
			if must && (s.known || len(s.files) > 0) {
				return fmt.Errorf("the kernel comes without the module %s", name)
			}
			return nil
		}
		done[name] = true
		data, err := read()
		if err != nil {
			return err
		}
		if data, err = unpackModule(s.paths[name], data); err != nil {
			return fmt.Errorf("unpack the module %s: %w", name, err)
		}
		depends, before, err := dependencies(data)
		if err != nil {
			return fmt.Errorf("read the module %s: %w", name, err)
		}
		for _, d := range before {
			if err := visit(d, false); err != nil {
				return err
			}
		}
		for _, d := range depends {
			if err := visit(d, true); err != nil {
				return err
			}
		}
		list = append(list, module{name, data})
		return nil
	}
	for _, name := range needed {
		if err := visit(name, true); err != nil {
			return nil, err
		}
	}
	for _, name := range useful {
		if err := visit(name, false); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func unpackModule(file string, data []byte) ([]byte, error) {
	switch path.Ext(file) {
	case ".xz":
		z, err := xz.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		return readAll(z)
	case ".gz":
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		return readAll(z)
	case ".zst":
		return unzstd(data)
	}
	return data, nil
}

// dependencies reads from a module what must be loaded before it, and what should.
func dependencies(data []byte) (depends, before []string, err error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, nil, errors.New("it has no .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, nil, err
	}
	for field := range bytes.SplitSeq(info, []byte{0}) {
		key, value, _ := strings.Cut(string(field), "=")
		switch key {
		case "depends":
			depends = append(depends, strings.FieldsFunc(value, func(r rune) bool { return r == ',' })...)
		case "softdep":
			before = append(before, vm.SoftBefore(strings.Fields(value))...)
		}
	}
	for _, list := range [][]string{depends, before} {
		for i := range list {
			list[i] = strings.ReplaceAll(list[i], "-", "_")
		}
	}
	return depends, before, nil
}
