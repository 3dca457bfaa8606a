package microvm_test

import (
	"encoding/json"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/microvm"
)

// qemuOf returns the process of a machine.
func qemuOf(t *testing.T, m bothy.Machine) int {
	t.Helper()
	var state struct{ PID int }
	if err := json.Unmarshal(m.State(), &state); err != nil || state.PID == 0 {
		t.Fatalf("the state %s names no process: %v", m.State(), err)
	}
	return state.PID
}

// TestHungMachineIsGivenUp stops QEMU, tries operations that need it, and destroys the machine.
func TestHungMachineIsGivenUp(t *testing.T) {
	m, err := newEngine(t, options(t.TempDir(), newParent(t))).Start(t.Context(), spec("hangs"))
	use(t, m, err)
	defer microvm.SetAskTime(time.Second)()
	if err := unix.Kill(qemuOf(t, m), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func() error{
		"snapshot": func() error { return m.Snapshot(t.Context(), bothy.SnapshotOptions{MemoryDir: t.TempDir()}) },
		"freeze":   func() error { return m.Freeze(t.Context()) },
	} {
		begun := time.Now()
		err := do()
		if be := bothy.AsError(err); be.Code != bothy.CodeEngine || be.Hint == "" {
			t.Errorf("%s of a hung machine: %v", name, err)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("%s waited for %v", name, took)
		}
	}
	destroyed := make(chan error, 1)
	go func() { destroyed <- m.Destroy(t.Context()) }()
	select {
	case err := <-destroyed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Destroy waits for a hung machine")
	}
}

// TestKilledMachineSaysSo ends QEMU from outside.
func TestKilledMachineSaysSo(t *testing.T) {
	m, err := newEngine(t, options(t.TempDir(), newParent(t))).Start(t.Context(), spec("killed"))
	use(t, m, err)
	if err := unix.Kill(qemuOf(t, m), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-m.Done()
	if x := m.Exit(); x.Reason != bothy.EndError || x.Detail != "the sandbox's machine was killed from outside by signal 9 (SIGKILL); the server's log has its console output" {
		t.Errorf("the machine ended with %+v", x)
	}
}
