package ssh

import (
	"cmp"
	"crypto/ed25519"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// Arg is the argument with which the guest's program is an SSH server, and ConnFD the
// descriptor of its connection. The seed of the host key comes on standard input when the
// connection is ready.
const (
	Arg    = "ssh"
	ConnFD = 3

	keepalive = 30 * time.Second
)

// Main is the SSH server's process.
func Main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(os.Stdin, seed); err != nil {
		return fmt.Errorf("read the host key: %w", err)
	}
	file := os.NewFile(ConnFD, "connection")
	c, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return err
	}
	shell := cmp.Or(os.Getenv("SHELL"), "/bin/sh")
	if _, err := os.Stat(shell); err != nil {
		shell = "/bin/sh"
	}
	// Sessions are no part of the command that this process is to the agent.
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "BOTHY_COMMAND_ID=") })
	env = append(env, "SSH_CLIENT=127.0.0.1 22 22", "SSH_CONNECTION=127.0.0.1 22 127.0.0.1 22")
	return Serve(c, Config{
		HostKey: ed25519.NewKeyFromSeed(seed), Env: env, Home: cmp.Or(os.Getenv("HOME"), "/"), Shell: shell, Keepalive: keepalive,
	})
}
