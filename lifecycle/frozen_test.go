package lifecycle_test

import (
	"testing"
	"time"

	"github.com/bothy-dev/bothy/lifecycle/warm"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/fake"
)

// rest advances the clock far enough for two checks for idle machines.
func (w *world) rest() {
	w.clock.pass(7 * time.Second)
	w.clock.pass(2 * time.Second)
}

func (w *world) exec(id string) {
	w.t.Helper()
	if _, err := w.Exec(w.me(), id, bothy.ExecRequest{Command: bothy.Command{Line: "x"}}); err != nil {
		w.t.Fatal(err)
	}
}

// peek returns a machine without the engine, which would thaw it.
func (w *world) peek(id string) *fake.Machine {
	w.t.Helper()
	m := w.host.Machine(id)
	if m == nil {
		w.t.Fatalf("there is no machine %s", id)
	}
	return m
}

func TestAnIdleMachineIsFrozenAndThawedOnUse(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	m := w.peek(sb.ID)
	if w.rest(); !m.Frozen() {
		t.Fatal("it is idle but not frozen")
	}
	// Reading its state does not thaw it.
	if _, err := w.Metrics(w.me(), sb.ID); err != nil || !m.Frozen() {
		t.Errorf("reading its state thawed it or failed: %v", err)
	}
	if got := w.get(sb.ID); got.State != bothy.StateRunning {
		t.Errorf("it is %s", got.State)
	}
	if w.exec(sb.ID); m.Frozen() {
		t.Error("a command ran in a frozen machine")
	}
	if w.clock.pass(3 * time.Second); m.Frozen() {
		t.Error("it is frozen although it was just used")
	}
	if w.rest(); !m.Frozen() {
		t.Error("it was not frozen again")
	}
	if err := w.Terminate(w.me(), sb.ID); err != nil {
		t.Error(err)
	}
}

func TestMachinesInUseAreNotFrozen(t *testing.T) {
	w := newWorld(t)
	for name, stats := range map[string]bothy.GuestStats{
		"a command":                  {Processes: 2, Commands: 1},
		"a process left behind":      {Processes: 2},
		"one beside an interpreter":  {Processes: 3, Interpreters: 1},
		"a guest that cannot tell":   {},
		"more commands than it says": {Processes: 1, Commands: 1},
	} {
		sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
		w.guests.last().setStats(stats)
		w.rest()
		w.clock.pass(time.Hour)
		w.rest()
		if w.peek(sb.ID).Frozen() {
			t.Errorf("%s: frozen", name)
		}
	}
}

func TestAnInterpreterCountsAsInUseOnceCodeRan(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	w.guests.last().setStats(bothy.GuestStats{Processes: 2, Interpreters: 1})
	m := w.peek(sb.ID)
	if w.rest(); !m.Frozen() {
		t.Fatal("an unused warm interpreter prevents freezing")
	}
	_, _ = w.RunCode(w.me(), sb.ID, bothy.CodeRequest{Code: "start a thread"})
	w.rest()
	if w.clock.pass(time.Hour); m.Frozen() {
		t.Error("it is frozen although user code ran in the interpreter")
	}
}

func TestAConnectionPreventsFreezing(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	w.guests.last().ports = map[uint16]bool{8000: true}
	m := w.peek(sb.ID)
	w.rest()
	c, err := w.DialPort(w.me(), sb.ID, 8000)
	if err != nil {
		t.Fatal(err)
	}
	w.rest()
	if w.clock.pass(time.Hour); m.Frozen() {
		t.Error("it is frozen with an open connection")
	}
	c.Close()
	if w.rest(); !m.Frozen() {
		t.Error("it is not frozen after the connection ended")
	}
}

func TestAFrozenMachineCanBePausedCopiedAndRecovered(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{TimeoutSeconds: seconds(0)})
	w.rest()
	if _, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{}); err != nil {
		t.Error(err)
	}
	if w.rest(); !w.peek(sb.ID).Frozen() {
		t.Fatal("it was not frozen again after a snapshot")
	}
	if _, err := w.Fork(w.me(), sb.ID, bothy.ForkRequest{Count: 2}); err != nil {
		t.Error(err)
	}
	w.rest()
	w.restart()
	if w.peek(sb.ID).Frozen() {
		t.Error("a new server recovered it but left it frozen")
	}
	w.exec(sb.ID)
	w.guests.last().setStats(bothy.GuestStats{Processes: 1})
	w.rest()
	if _, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{}); err != nil {
		t.Error(err)
	}
	w.exec(sb.ID)
}

func TestReadyMachinesAreFrozenUntilTheyAreClaimed(t *testing.T) {
	w := newWorld(t)
	w.pool = warm.Options{Ready: 1, ReadyMax: 1, Templates: []string{"t"}}
	w.restart()
	w.StartPool()
	eventually(t, "one is ready", func() bool { return w.Pool(t.Context()).Ready == 1 })
	// A warm interpreter of a ready machine does not prevent freezing.
	w.guests.last().setStats(bothy.GuestStats{Processes: 5, Interpreters: 1})
	w.rest()
	id := w.host.IDs()[0]
	if !w.peek(id).Frozen() {
		t.Fatal("a ready machine is not frozen")
	}
	sb := w.create(bothy.SandboxCreate{Template: "t"})
	if sb.ID != id || w.peek(id).Frozen() {
		t.Errorf("sandbox %s of the ready machine %s is frozen: %v", sb.ID, id, w.peek(id).Frozen())
	}
}
