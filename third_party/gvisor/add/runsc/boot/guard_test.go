package boot

import (
	"errors"
	"strings"
	"testing"
)

func TestPanicOfLoadingIsAnError(t *testing.T) {
	err := guarded(func() error { panic("no such thing") })
	if err == nil || !strings.Contains(err.Error(), "not one of this kernel's: no such thing") {
		t.Errorf("it is %v", err)
	}
	want := errors.New("not read")
	if err := guarded(func() error { return want }); err != want {
		t.Errorf("%v became %v", want, err)
	}
}
