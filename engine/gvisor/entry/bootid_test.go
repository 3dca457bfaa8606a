package entry

import "testing"

func TestBootID(t *testing.T) {
	const kernels = "01234567-89ab-4cde-8f01-23456789abcd\n"
	a, b := bootID(kernels, "a"), bootID(kernels, "b")
	if !isUUID(a) || !isUUID(b) || a == b || a == kernels || a != bootID(kernels, "a") {
		t.Errorf("the boot ids of two copies are %q and %q", a, b)
	}
	for _, s := range []string{"", "2\n", kernels[:36], kernels[1:] + "x", "01234567-89ab-4cde-8f01 23456789abcd\n"} {
		if isUUID(s) {
			t.Errorf("%q is accepted as a boot id", s)
		}
	}
}
