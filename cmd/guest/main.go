// Command guest is the agent in every sandbox, where it is process 1 and has no
// arguments. With the argument "ssh" it serves an SSH connection. In tests it is an ordinary process, which serves at the given address
// and does not change the machine.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/agent"
	"github.com/bothy-dev/bothy/guest/ssh"
)

// version is set when the binary is built.
var version = "dev"

// gcPercent is a low GOGC, which applies once the agent has been running for a
// while.
const (
	gcPercent = 25
	startUp   = time.Second
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("guest: ")
	if len(os.Args) == 2 && os.Args[1] == ssh.Arg {
		runtime.GOMAXPROCS(1)
		debug.SetGCPercent(gcPercent)
		ssh.Main()
		return
	}
	listen := flag.String("listen", "", "`address` to serve at: host:port or unix:PATH (default the sandbox's own)")
	root := flag.String("root", "", "`folder` put before the paths of the files that hold the sandbox's identity")
	user := flag.String("user", bothy.DefaultUser, "`user` who runs commands")
	cwd := flag.String("cwd", bothy.DefaultCwd, "`folder` where commands start")
	flag.Parse()

	// The agent is in every sandbox, so small is better than fast. One processor is
	// also faster, because no work moves between threads. The engine may already
	// have set this in the environment.
	runtime.GOMAXPROCS(1)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	} else {
		time.AfterFunc(startUp, func() { debug.SetGCPercent(gcPercent) })
	}

	opt := agent.Options{Version: version, Root: *root, User: *user, Cwd: *cwd}
	if *listen == "" {
		*listen = netip.AddrPortFrom(bothy.GuestAddr, bothy.GuestPort).String()
		opt.Peer = bothy.GatewayAddr
	}
	if err := run(opt, *listen); err != nil {
		log.Fatal(err)
	}
}

func run(opt agent.Options, address string) error {
	isInit := os.Getpid() == 1
	if isInit {
		becomeInit(&opt)
	}
	a, err := agent.New(opt)
	if err != nil {
		return err
	}
	l, err := listenAt(address)
	if err != nil {
		return err
	}
	if !isInit {
		go closeOnSignal(a)
		fmt.Println(l.Addr())
		defer a.Close() // Serve returns before all commands have ended
	}
	return a.Serve(l)
}

// listenAt waits a moment for the network: process 1 may start before it.
func listenAt(address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return net.Listen("unix", path)
	}
	for wait := time.Millisecond; ; wait *= 2 {
		l, err := net.Listen("tcp", address)
		if err == nil || !errors.Is(err, syscall.EADDRNOTAVAIL) || wait > 10*time.Second {
			return l, err
		}
		time.Sleep(wait)
	}
}
