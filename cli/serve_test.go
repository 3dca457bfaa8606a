//go:build linux && !clientonly

package cli

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
)

// signalledServer counts what signals make it do.
type signalledServer struct {
	tls      bool
	reloaded int
}

func (s *signalledServer) ReloadCertificate() bool {
	if s.tls {
		s.reloaded++
	}
	return s.tls
}

func TestSignalsOfAServer(t *testing.T) {
	for _, tls := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			signals, s, hungUp := make(chan os.Signal), &signalledServer{tls: tls}, 0
			go onSignals(ctx, signals, s, func() { hungUp++ })
			for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGHUP} { // it goes on after the first
				signals <- sig
			}
			synctest.Wait()
			want := 2
			if tls {
				want = 0
			}
			if hungUp != want || s.reloaded != 2-want {
				t.Errorf("TLS %v: reloaded %d times, hung up %d times", tls, s.reloaded, hungUp)
			}
		})
	}
}
