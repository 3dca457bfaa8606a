package stateio

import (
	"runtime"
	"testing"
)

func TestReadersAreFewerWithFewProcessors(t *testing.T) {
	r := NewPagesFileFDReaderDefault(-1)
	defer r.Close()
	if got := r.MaxParallel(); got > max(2, runtime.NumCPU()) {
		t.Errorf("%d threads read at once on %d processors", got, runtime.NumCPU())
	}
}
