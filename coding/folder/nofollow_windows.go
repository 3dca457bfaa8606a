package folder

import "syscall"

// nofollow opens a link itself, which cannot be read, instead of what it leads to.
const nofollow = syscall.FILE_FLAG_OPEN_REPARSE_POINT
