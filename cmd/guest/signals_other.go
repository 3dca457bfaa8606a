//go:build !amd64

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// catch has this process handle signals, and do nothing.
func catch(signals ...syscall.Signal) error {
	nobody := make(chan os.Signal, 1)
	for _, s := range signals {
		signal.Notify(nobody, s)
	}
	return nil
}
