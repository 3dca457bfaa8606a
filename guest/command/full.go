package command

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// fullRoot is the file system that a command may have filled.
const fullRoot = "/"

// fullHint says what to do if a command failed and the sandbox's file system is full;
// otherwise it is empty.
func fullHint() string {
	var st unix.Statfs_t
	if unix.Statfs(fullRoot, &st) != nil {
		return ""
	}
	return hintOf(&st)
}

func hintOf(st *unix.Statfs_t) string {
	switch {
	case st.Files > 0 && st.Ffree == 0:
		return fmt.Sprintf("The sandbox has all the %d files, folders and links that its memory allows, so no more can be made. "+
			"Remove some, or create the sandbox with more memory_mb.", st.Files)
	case st.Blocks > 0 && st.Bavail == 0:
		return "The sandbox's disk is full. Remove files, or create the sandbox with a larger disk_mb."
	}
	return ""
}
