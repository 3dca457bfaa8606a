package microvm

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A socket's path may exceed the kernel's limit, so it is addressed through its folder's
// descriptor.
func viaFolder(path string, f func(short string) error) error {
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}

func dialUnix(path string) (conn *net.UnixConn, err error) {
	err = viaFolder(path, func(short string) error {
		conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: short, Net: "unix"})
		return err
	})
	return conn, err
}

// listenUnix creates a listening socket for another process to accept on.
func listenUnix(path string) (f *os.File, err error) {
	err = viaFolder(path, func(short string) error {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false)
		defer l.Close()
		f, err = l.File()
		return err
	})
	return f, err
}
