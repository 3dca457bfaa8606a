package vdsodata

import (
	"bytes"
	"runtime"
	"testing"
)

func TestBootTimeIsTheKernels(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("only x86's vDSO is changed")
	}
	for end, want := range map[string]int{"\x06": 1, "\x07": 0} {
		if n := bytes.Count(Binary, []byte("\x83\xff"+end+"\x77")); n != want {
			t.Errorf("there are %d tables that end with clock %q, want %d", n, end, want)
		}
	}
}
