package gvisor_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
)

// TestFailedKernelSaysWhy ends a sandbox's kernel with the output that a panic leaves.
func TestFailedKernelSaysWhy(t *testing.T) {
	dir, parent := newPlace(t)
	m, err := newEngine(t, dir, parent).Start(t.Context(), spec("fails"))
	if err != nil {
		t.Fatal(err)
	}
	words := "panic: a fault\n\ngoroutine 1 [running]:\n"
	if err := os.WriteFile(filepath.Join(dir, "engine", m.ID(), "panic.log"), []byte(words), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(sentryOf(t, m), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-m.Done()
	if x := m.Exit(); x.Reason != bothy.EndError || !strings.Contains(x.Detail, "(panic: a fault)") {
		t.Errorf("the machine ended with %+v, want the panic in it", x)
	}
}

// TestKilledKernelSaysSo kills a sandbox's kernel from the host with a signal. The machine must neither
// hang nor be reported as having ended by itself.
func TestKilledKernelSaysSo(t *testing.T) {
	dir, parent := newPlace(t)
	e := newEngine(t, dir, parent)
	for signal, want := range map[unix.Signal]string{
		unix.SIGKILL: "SIGKILL", unix.SIGSEGV: "SIGSEGV", unix.SIGQUIT: "SIGQUIT", unix.SIGABRT: "SIGABRT",
	} {
		m, err := e.Start(t.Context(), spec("killed"))
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(sentryOf(t, m), signal); err != nil {
			t.Fatal(err)
		}
		select {
		case <-m.Done():
		case <-time.After(time.Minute):
			m.Destroy(t.Context())
			t.Errorf("the machine keeps running after %v", signal)
			continue
		}
		if x := m.Exit(); x.Reason != bothy.EndError || !strings.Contains(x.Detail, want) {
			t.Errorf("after %v the machine ended with %+v", signal, x)
		}
	}
}

func sentryOf(t *testing.T, m bothy.Machine) int {
	t.Helper()
	var state struct{ PID int }
	if err := json.Unmarshal(m.State(), &state); err != nil || state.PID == 0 {
		t.Fatalf("the state %s of %s names no process: %v", m.State(), m.ID(), err)
	}
	return state.PID
}
