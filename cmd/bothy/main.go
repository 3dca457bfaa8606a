// Command bothy is both the server and its command line.
package main

import (
	"os"

	"github.com/bothy-dev/bothy/cli"
)

// version is set when a release is built.
var version = "dev"

func main() { os.Exit(cli.Main(version)) }
