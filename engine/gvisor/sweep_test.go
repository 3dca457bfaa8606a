package gvisor_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bothy-dev/bothy"
)

// A server that is killed during a rollback leaves a sandbox's new machine, and may leave files of the old
// one under the sandbox's own name.
func TestSweepRemovesTheEarlierMachineOfALivingSandbox(t *testing.T) {
	dir, parent := newPlace(t)
	first := newEngine(t, dir, parent)
	earlier, err := first.Start(t.Context(), spec("a"))
	if err != nil {
		t.Fatal(err)
	}
	beside := spec("a")
	beside.AllowConcurrent = true
	later, err := first.Start(t.Context(), beside)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { later.Destroy(t.Context()) })

	for _, adopted := range []bool{false, true} {
		next := newEngine(t, dir, parent)
		kept := next.(bothy.MachineNamer).MachineName("a", later.State())
		if kept == "a" {
			t.Fatal("both machines have the same name, so this test proves nothing")
		}
		var m bothy.Machine
		if adopted {
			if m, err = next.Adopt(t.Context(), "a", later.State()); err != nil {
				t.Fatal(err)
			}
		}
		ids, err := next.Sweep(t.Context(), func(name string) bool { return name == kept })
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "engine", "a")); err == nil {
			t.Errorf("the earlier machine's folder is left; removed: %v", ids)
		}
		select {
		case <-later.Done():
			t.Fatal("the sandbox's own machine was removed")
		default:
		}
		if !adopted {
			<-earlier.Done()
			continue
		}
		// The name must be free for the next resume.
		if err := m.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
		again, err := next.Start(t.Context(), spec("a"))
		if err != nil {
			t.Fatal(err)
		}
		again.Destroy(t.Context())
	}
}
