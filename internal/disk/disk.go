// Package disk tells how much room a disk of the host has.
package disk

import "golang.org/x/sys/unix"

// Free is how many bytes may still be written by others than root where a folder is.
func Free(dir string) (int64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return int64(fs.Bavail) * int64(fs.Bsize), nil
}
