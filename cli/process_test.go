package cli

import "testing"

func TestSignalsHaveLinuxNumbers(t *testing.T) {
	for text, want := range map[string]int{"HUP": 1, "SIGKILL": 9, "usr1": 10, "Term": 15, "CHLD": 17, "SYS": 31, "64": 64, "SIG": 0, "": 0, "0": 0, "NOPE": 0} {
		if got, err := signalNumber(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
}
