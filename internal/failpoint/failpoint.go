// Package failpoint lets tests make a step fail, or kill the process in the middle of it. Any
// package may define one; outside tests it costs loading one pointer.
package failpoint

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
)

// Env names the environment variable that arms failpoints in a child process:
// "name=error,name=kill".
const Env = "BOTHY_FAILPOINTS"

var armed atomic.Pointer[map[string]func() error]

func init() {
	if v := os.Getenv(Env); v != "" {
		arm(v)
	}
}

func arm(spec string) {
	m := map[string]func() error{}
	for _, item := range strings.Split(spec, ",") {
		name, action, _ := strings.Cut(item, "=")
		switch action {
		case "kill":
			m[name] = func() error {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		case "error":
			m[name] = func() error { return fmt.Errorf("failpoint %s", name) }
		}
	}
	armed.Store(&m)
}

// Hit runs the function that a test set under the name. Otherwise it returns nil.
func Hit(name string) error {
	m := armed.Load()
	if m == nil {
		return nil
	}
	if f := (*m)[name]; f != nil {
		return f()
	}
	return nil
}

// Set sets f under a name and returns a function that removes it. For tests only; two tests in
// one process must not use the same name concurrently.
func Set(name string, f func() error) (remove func()) {
	old := armed.Load()
	m := map[string]func() error{name: f}
	if old != nil {
		for k, v := range *old {
			if k != name {
				m[k] = v
			}
		}
	}
	armed.Store(&m)
	return func() { armed.Store(old) }
}
