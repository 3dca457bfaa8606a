package microvm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/builds"
)

// Protocol is the version of the protocol between this server and a virtual machine: QEMU's
// arguments and monitor, requests to the first program inside, and the guest's API. Raise it
// with any change that an older machine does not understand; then either support both
// versions, or raise OldestProtocol, too, after which snapshots of older builds restore only
// their files. Raise argsRevision as well if the change concerns QEMU.
const (
	Protocol       = 1
	OldestProtocol = 1
)

// The files of a build that are not in QEMU's tree.
const (
	roleGuest   = "guest"
	roleModules = "modules"
)

// openBuilds opens the engine's own store if there is none to share.
func (e *Engine) openBuilds() (err error) {
	e.builds = e.o.Builds
	if e.builds == nil {
		e.builds, err = builds.Open(filepath.Join(e.o.Dir, cacheName, "engines"), builds.Options{})
	}
	return err
}

// keepOwn keeps the build of this server, which its machines are run from: QEMU with all that it
// needs, the kernel, and the guest.
func (e *Engine) keepOwn(p program) error {
	b := builds.Build{
		Engine: Name, Versions: []string{"qemu-" + p.version, e.o.Boot.Version}, Protocol: Protocol, Dirs: treeDirs,
	}
	from, env, err := treeFiles(p, e.o.Boot)
	if err != nil {
		return err
	}
	b.Env = env
	if e.o.Guest != "" {
		from = append(from, builds.Source{From: e.o.Guest, Role: roleGuest})
	}
	if e.o.Boot.Modules != "" {
		from = append(from, builds.Source{From: e.o.Boot.Modules, Role: roleModules})
	}
	if b.Stamp, err = stamp(from); err != nil {
		return err
	}
	if b.Host, err = e.host(); err != nil {
		return err
	}
	if b.Name, err = e.makeBuild(b.Host); err != nil {
		return err
	}
	if e.own, err = e.builds.Put(b, from); err != nil {
		return err
	}
	removeOldTrees(filepath.Join(e.o.Dir, cacheName))
	return nil
}

// stamp changes with the files that a build is made of. It uses dates and sizes, since reading
// the files would take longer.
func stamp(from []builds.Source) (string, error) {
	h := sha256.New()
	for _, f := range from {
		st, err := os.Stat(f.From)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(h, f.From, f.Place, f.Role, st.Size())
		if st.Mode().IsRegular() {
			fmt.Fprintln(h, st.ModTime().UnixNano())
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// host names what a snapshot depends on in this host.
func (e *Engine) host() (string, error) {
	if e.o.Acceleration != bothy.AccelerationKVM {
		return string(e.o.Acceleration), nil
	}
	if leveled(e.o.CPULevel) {
		// All hosts whose machines see the same features.
		p := e.shown()
		return p.Vendor + " " + strings.Join(p.Features, " "), nil
	}
	return processorModel()
}

// features returns the processor features that new machines see; nil means all.
func (e *Engine) features() []string {
	if e.o.Acceleration != bothy.AccelerationKVM || !leveled(e.o.CPULevel) {
		return nil
	}
	return e.shown().Features
}

// leveled reports whether machines see fewer features than the host's processor has.
func leveled(level string) bool { return level != "" && level != bothy.CPUHost }

// makeBuild names everything that a snapshot depends on.
func (e *Engine) makeBuild(host string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, e.o.Boot.Digest)
	if e.o.Guest != "" {
		f, err := os.Open(e.o.Guest)
		if err != nil {
			return "", bothy.Errorf(bothy.CodeEngineMissing, "the guest's image cannot be read").
				WithHint("Build with `make build`, which puts it into the bothy binary.").Because(err)
		}
		defer f.Close()
		if _, err := io.Copy(h, f); err != nil {
			return "", err
		}
	}
	if e.o.Acceleration == bothy.AccelerationKVM {
		fmt.Fprintln(h, host)
	}
	return fmt.Sprintf("%s-%s-%s-%s-%s", Name, e.vmm.version(), e.o.Boot.Version, e.o.Acceleration, hex.EncodeToString(h.Sum(nil)[:6])), nil
}

// removeOldTrees removes trees in an older layout. Running machines have their files
// open.
func removeOldTrees(cache string) {
	for _, pattern := range []string{"tree-*", "modules-*"} {
		found, _ := filepath.Glob(filepath.Join(cache, pattern))
		for _, path := range found {
			_ = os.RemoveAll(path)
		}
	}
}

// HoldBuild checks that there is a build, and keeps it.
func (e *Engine) HoldBuild(build string) (release func(), err error) {
	kept, err := e.holdBuild(build)
	return kept.Release, err
}

// Wakes reports whether memory of a build that was kept can be restored on this host.
func (e *Engine) Wakes(b *builds.Build) bool { return b.Host == e.own.Host }

// holdBuild returns nil for this engine's own build, which is always kept.
func (e *Engine) holdBuild(build string) (*builds.Held, error) {
	if build == "" || build == e.own.Name {
		return nil, nil
	}
	kept, err := e.builds.Hold(Name, build)
	if err != nil {
		return nil, err
	}
	if kept.Host != e.own.Host {
		kept.Release()
		return nil, builds.Unusable("whose machines run with another acceleration, or on another processor, than this host's")
	}
	return kept, nil
}
