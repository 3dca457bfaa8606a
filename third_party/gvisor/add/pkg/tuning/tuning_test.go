package tuning

import (
	"os"
	"os/exec"
	"testing"
)

// What the environment names when a process starts is off in it, and all else is on.
func TestNamedOnesAreOff(t *testing.T) {
	if os.Getenv(Variable) == "" {
		c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		c.Env = append(os.Environ(), Variable+"=one,three")
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	for name, want := range map[string]bool{"one": false, "two": true, "three": false, "thre": true, "one,three": true} {
		if On(name) != want {
			t.Errorf("%q is on: %v, want %v", name, On(name), want)
		}
	}
}
