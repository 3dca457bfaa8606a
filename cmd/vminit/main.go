// Command vminit is the first program of a virtual machine: it puts the sandbox
// together in there and looks after it. On the host the same binary, started with an
// argument, shuts the program that emulates the machine in before it runs it.
package main

import (
	"os"

	"github.com/bothy-dev/bothy/engine/microvm/jail"
	"github.com/bothy-dev/bothy/engine/microvm/vm"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == jail.Arg {
		jail.Main()
	}
	vm.Main(os.Args)
}
