// Command vminit is the init process of a virtual machine: it assembles the sandbox in
// it and manages it. On the host, with an argument, the same binary confines QEMU
// before it runs it.
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
