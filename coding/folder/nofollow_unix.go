//go:build unix

package folder

import "syscall"

// nofollow opens a file without following a link or waiting for a pipe.
const nofollow = syscall.O_NOFOLLOW | syscall.O_NONBLOCK
