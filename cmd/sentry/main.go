// Command sentry is the process that holds one gVisor sandbox. The engine runs
// it again for every sandbox, and once more as the helper that makes network
// namespaces. It is a binary of its own so that the server's code and start-up
// work stay out of every sandbox.
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
