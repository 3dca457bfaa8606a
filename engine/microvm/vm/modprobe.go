package vm

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Modprobe is the program that the kernel runs when a module is requested. It is
// this one.
const Modprobe = "/sbin/modprobe"

// moduleDir is where the image of all modules is mounted, if there is one.
const moduleDir = "/allmodules"

// modprobe loads the modules that the kernel asks for: "modprobe -q -- NAME".
func modprobe(args []string) error {
	failed := errors.New("no module is named")
	for _, name := range args {
		if strings.HasPrefix(name, "-") {
			continue
		}
		if failed = newModules(moduleDir).load(name); failed != nil {
			return failed
		}
	}
	return failed
}

// modules are those below a folder, as depmod has listed them.
type modules struct {
	dir string
	// needs lists, for each file, what must be loaded first, in reverse order.
	needs map[string][]string
	files map[string]string // by name
}

func newModules(dir string) *modules { return &modules{dir: dir} }

// moduleName returns the kernel's spelling of a module's name.
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

// load loads a module, or all modules with an alias, each after its dependencies.
func (m *modules) load(name string) error {
	if err := m.readNeeds(); err != nil {
		return err
	}
	name = moduleName(name)
	list := []string{name}
	if m.files[name] == "" {
		var err error
		if list, err = m.aliases(name); err != nil {
			return err
		}
	}
	for _, one := range list {
		if err := m.loadOne(one); err != nil {
			return err
		}
	}
	return nil
}

func (m *modules) loadOne(name string) error {
	file := m.files[name]
	if file == "" {
		return fmt.Errorf("there is no module %s", name)
	}
	before, err := m.before(name)
	if err != nil {
		return err
	}
	for _, soft := range before {
		_ = m.loadOne(soft) // it may be built in
	}
	order := slices.Clone(m.needs[file])
	slices.Reverse(order)
	for _, f := range append(order, file) {
		if err := insert(filepath.Join(m.dir, f)); err != nil {
			return fmt.Errorf("load %s: %w", filepath.Base(f), err)
		}
	}
	return nil
}

func insert(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != unix.EEXIST {
		return err
	}
	return nil
}

func (m *modules) readNeeds() error {
	m.needs, m.files = map[string][]string{}, map[string]string{}
	return m.lines("modules.dep", func(words []string) {
		file := strings.TrimSuffix(words[0], ":")
		m.needs[file] = words[1:]
		m.files[moduleName(strings.TrimSuffix(path.Base(file), ".ko"))] = file
	})
}

// aliases lists the modules that an alias stands for.
func (m *modules) aliases(name string) (list []string, err error) {
	err = m.lines("modules.alias", func(words []string) {
		if len(words) != 3 || words[0] != "alias" {
			return
		}
		if ok, _ := path.Match(moduleName(words[1]), name); ok {
			list = append(list, moduleName(words[2]))
		}
	})
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("no module is called %s", name)
	}
	return list, err
}

// before lists what should be loaded before a module, though it does not need it.
func (m *modules) before(name string) (list []string, err error) {
	err = m.lines("modules.softdep", func(words []string) {
		if len(words) < 3 || words[0] != "softdep" || moduleName(words[1]) != name {
			return
		}
		for _, name := range SoftBefore(words[2:]) {
			list = append(list, moduleName(name))
		}
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return list, err
}

// SoftBefore lists the modules to be loaded before a module according to "pre:
// a b post: c".
func SoftBefore(words []string) (list []string) {
	pre := false
	for _, w := range words {
		switch w {
		case "pre:", "post:":
			pre = w == "pre:"
		default:
			if pre {
				list = append(list, w)
			}
		}
	}
	return list
}

// lines calls fn with the words of each line of a list, except comments and empty lines.
func (m *modules) lines(list string, fn func(words []string)) error {
	f, err := os.Open(filepath.Join(m.dir, list))
	if err != nil {
		return err
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		if words := strings.Fields(s.Text()); len(words) > 0 && words[0][0] != '#' {
			fn(words)
		}
	}
	return s.Err()
}

// mountModules mounts the image of all modules, if there is one.
func mountModules() error {
	d, err := disk(DiskModules)
	if err != nil {
		return err
	}
	if err := mount(d, "erofs", moduleDir, unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mount the modules: %w", err)
	}
	return nil
}

// showModules shows the modules inside, where programs look for them.
func showModules() error {
	if _, err := os.Stat(moduleDir + "/modules.dep"); err != nil {
		return nil // the kernel came without modules
	}
	if _, err := os.Stat(sandboxDir + "/lib"); err != nil {
		return nil // they are not looked for there
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return err
	}
	to := filepath.Join(sandboxDir, "lib/modules", unix.ByteSliceToString(uts.Release[:]))
	if err := bind(moduleDir, to, plain|unix.MS_RDONLY); err != nil {
		return fmt.Errorf("show the modules: %w", err)
	}
	return nil
}
