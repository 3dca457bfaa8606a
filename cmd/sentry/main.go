// Command sentry is the process of one gVisor sandbox. The engine starts one for
// every sandbox, and one more as the helper that creates network namespaces. It is
// a separate binary to keep the server's code and start-up work out of sandboxes.
package main

import (
	"fmt"
	"os"

	"github.com/bothy-dev/bothy/engine/gvisor/entry"
)

func main() {
	if err := entry.Main(); err != nil {
		fmt.Fprintln(os.Stderr, "sentry:", err)
		os.Exit(1)
	}
}
