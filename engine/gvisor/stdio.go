package gvisor

import (
	"os"
	"sync"
)

// stdio keeps the server's own standard files out of sandboxes: the library
// hands os.Stdin, os.Stdout and os.Stderr to every sentry it starts. While one
// starts, they are the null device.
var stdio struct {
	sync.Mutex
	users int
	saved [3]*os.File
	null  *os.File
}

func hideStdio() (restore func(), err error) {
	stdio.Lock()
	defer stdio.Unlock()
	if stdio.users == 0 {
		null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		stdio.saved = [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
		stdio.null = null
		os.Stdin, os.Stdout, os.Stderr = null, null, null
	}
	stdio.users++
	return showStdio, nil
}

func showStdio() {
	stdio.Lock()
	defer stdio.Unlock()
	stdio.users--
	if stdio.users == 0 {
		os.Stdin, os.Stdout, os.Stderr = stdio.saved[0], stdio.saved[1], stdio.saved[2]
		stdio.null.Close()
	}
}
