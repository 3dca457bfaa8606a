package money

import "testing"

func TestText(t *testing.T) {
	for v, want := range map[float64]string{0: "0.00", 1.5: "1.50", 0.000001: "0.000001", 0.0000001: "0.00", 1234567.125: "1234567.125"} {
		if got := Text(v); got != want {
			t.Errorf("%v is written as %s, want %s", v, got, want)
		}
	}
}
