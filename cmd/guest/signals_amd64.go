package main

import "syscall"

// handlers returns the addresses of a signal handler that does nothing, and of its
// restorer.
func handlers() (caught, restore uintptr)

// The handler and its restorer.
//
//lint:ignore U1000 the assembler takes its address
func caught()

//lint:ignore U1000 the assembler takes its address
func restore()

const (
	saRestorer = 0x0400_0000
	saOnStack  = 0x0800_0000
	saRestart  = 0x1000_0000
)

// catch handles signals by doing nothing. signal.Notify would switch between two threads
// for each signal.
func catch(signals ...syscall.Signal) error {
	handler, restorer := handlers()
	act := sigaction{handler: handler, flags: saRestorer | saOnStack | saRestart, restorer: restorer}
	for _, s := range signals {
		if err := act.set(s); err != nil {
			return err
		}
	}
	return nil
}
