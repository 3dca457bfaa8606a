package microvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
)

// A read's deadline may be noticed before the context that set it has ended the contexts derived from it.
func TestDeadlineMeansThatQEMUIsSilent(t *testing.T) {
	err := closeReason(context.Background(), fmt.Errorf("qemu: stop: %w", os.ErrDeadlineExceeded))
	if !errors.Is(err, errSilent) {
		t.Errorf("%v is not %v", err, errSilent)
	}
	if be := (&Machine{id: "hangs"}).hungError(err); be == nil || be.Error() == err.Error() {
		t.Errorf("the machine's error says only %v", be)
	}
}
