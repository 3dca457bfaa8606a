// Command bothy is both the server and its command line.
package main

import (
	"os"

	"github.com/bothy-dev/bothy/cli"
)

// These are set when a release is built.
var (
	version = "dev"
	commit  = ""
)

func main() { os.Exit(cli.Main(version, commit)) }
