// Package jail confines the program that emulates a machine before it runs: it gets an
// empty root with what it needs read-only, no user of the host, no capability and no
// way to gain one. engine/microvm asks for it; cmd/vminit runs it, in new namespaces,
// as the last program before.
package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// Arg is the argument that makes the binary a jail.
const Arg = "jail"

// configFD is where the jail reads its Config; descriptors above it pass through.
const configFD = 3

// FirstFD is the first descriptor that passes through.
const FirstFD = configFD + 1

// Config says what to run, and what it sees. Paths are the host's, except those
// below the new root.
type Config struct {
	// Root is the folder that becomes the root, and At an empty one to mount it at.
	Root string `json:"root"`
	At   string `json:"at"`
	// Binds are files and folders of the host, by their places below the root, which exist there
	// already. They are read-only, but special files can be written to.
	Binds map[string]string `json:"binds"`
	// Devices are those binds that are devices to be opened.
	Devices map[string]string `json:"devices"`
	UID     int               `json:"uid"`
	GID     int               `json:"gid"`
	Groups  []int             `json:"groups"`
	// SmallPages prevents the kernel from giving it more memory than it touches.
	SmallPages bool     `json:"small_pages"`
	Argv       []string `json:"argv"`
	Env        []string `json:"env"`
}

// Main is the jail. It does not return.
func Main() {
	runtime.LockOSThread()
	err := enter()
	fmt.Fprintln(os.Stderr, "jail:", err)
	os.Exit(1)
}

func enter() error {
	unix.CloseOnExec(configFD)
	b, err := io.ReadAll(os.NewFile(configFD, "config"))
	if err != nil {
		return err
	}
	var c Config
	if err := json.Unmarshal(b, &c); err != nil {
		return fmt.Errorf("read what to run: %w", err) // also when the server died before writing it
	}
	if err := changeRoot(c); err != nil {
		return err
	}
	if err := dropRights(c); err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", c.Argv[0], unix.Exec(c.Argv[0], c.Argv, c.Env))
}

const shut = unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID

func changeRoot(c Config) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := bind(c.Root, c.At, shut|unix.MS_NODEV); err != nil {
		return err
	}
	for to, from := range c.Binds {
		if err := bind(from, filepath.Join(c.At, to), shut|unix.MS_NODEV|unix.MS_NOEXEC); err != nil {
			return err
		}
	}
	for to, from := range c.Devices {
		if err := bind(from, filepath.Join(c.At, to), shut|unix.MS_NOEXEC); err != nil {
			return err
		}
	}
	if err := os.Chdir(c.At); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root: %w", err)
	}
	// The old root is mounted over the new one.
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	return os.Chdir("/")
}

func bind(from, to string, flags uintptr) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", to, err)
	}
	if err := unix.Mount("", to, "", flags, ""); err != nil {
		return fmt.Errorf("mount %s read-only: %w", to, err)
	}
	return nil
}

func dropRights(c Config) error {
	for c := uintptr(0); c < 64; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("drop capabilities: %w", err)
		}
	}
	none := unix.Rlimit{}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &none); err != nil {
		return err
	}
	if err := errors.Join(unix.Setgroups(c.Groups), unix.Setresgid(c.GID, c.GID, c.GID), unix.Setresuid(c.UID, c.UID, c.UID)); err != nil {
		return fmt.Errorf("become user %d: %w", c.UID, err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if c.SmallPages {
		if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil && err != unix.EINVAL {
			return err
		}
	}
	return nil
}
