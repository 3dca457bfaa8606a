//go:build !amd64

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// catch handles signals by doing nothing.
func catch(signals ...syscall.Signal) error {
	nobody := make(chan os.Signal, 1)
	for _, s := range signals {
		signal.Notify(nobody, s)
	}
	return nil
}
