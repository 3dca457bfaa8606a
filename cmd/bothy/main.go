// Command bothy is the one binary of the project: the server, and the command line that
// talks to it.
package main

import (
	"os"

	"github.com/bothy-dev/bothy/cli"
)

// version is set when a release is built.
var version = "dev"

func main() { os.Exit(cli.Main(version)) }
