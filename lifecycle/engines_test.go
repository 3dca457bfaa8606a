package lifecycle_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy/lifecycle/engines"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/engine/fake"
	"github.com/bothy-dev/bothy/lifecycle"
)

// twoEngines is a server with a second engine that is opened on first use.
type twoEngines struct {
	*world
	vms    *fake.Host
	info   bothy.EngineInfo
	broken error
	opened atomic.Int32
}

func withMicrovm(t *testing.T, a bothy.Acceleration) *twoEngines {
	w := newWorld(t)
	w.closeServer()
	two := &twoEngines{world: w, vms: &fake.Host{}}
	two.info = bothy.EngineInfo{Name: "vm", Build: "vm-1", Kernel: "6.1-vm", Snapshots: true, Acceleration: a}
	w.change = func(o *lifecycle.Options) {
		o.Openers = map[string]engines.Opener{"vm": func(ctx context.Context) (bothy.Engine, error) {
			two.opened.Add(1)
			engines.Step(ctx, "fetch a kernel")
			if two.broken != nil {
				return nil, two.broken
			}
			return fake.As(two.vms, two.info), nil
		}}
		o.Auto = []engines.Choice{{Engine: "vm", Accelerated: true}, {Engine: "fake"}}
	}
	w.open()
	return two
}

// Only those who wait for an engine see the progress of its preparation.
func TestProgressOfAnEngineIsReported(t *testing.T) {
	w := withMicrovm(t, bothy.AccelerationEmulated)
	stranger := bothy.WithCaller(t.Context(), &bothy.Caller{ProjectID: "other", Scopes: bothy.AllScopes})
	w.create(bothy.SandboxCreate{Engine: "vm"})
	reported := func(ctx context.Context) (list []map[string]string) {
		err := w.Events(ctx, bothy.EventFilter{}, func(e bothy.Event) error {
			if e.Type == bothy.EventEnginePreparing {
				list = append(list, e.Data)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if got := reported(w.me()); len(got) != 1 || got[0]["engine"] != "vm" || got[0]["step"] != "fetch a kernel" {
		t.Errorf("the reported steps are %v", got)
	}
	if got := reported(stranger); len(got) != 0 {
		t.Errorf("another project sees the steps %v", got)
	}
	engines.Step(t.Context(), "unwatched") // no request waits for this step
}

func TestAnEngineIsOpenedOnFirstUse(t *testing.T) {
	w := withMicrovm(t, bothy.AccelerationEmulated)
	plain := w.create(bothy.SandboxCreate{})
	if w.opened.Load() != 0 || plain.Engine != "fake" || plain.Acceleration != "" || plain.Kernel != "fake" {
		t.Errorf("opened %d times for %+v", w.opened.Load(), plain)
	}
	for range 2 {
		vm := w.create(bothy.SandboxCreate{Engine: "vm"})
		if vm.Engine != "vm" || vm.Acceleration != bothy.AccelerationEmulated || vm.Kernel != "6.1-vm" {
			t.Errorf("got %+v", vm)
		}
		if w.vms.Machine(vm.ID) == nil {
			t.Error("the machine is not of the requested engine")
		}
	}
	if w.opened.Load() != 1 {
		t.Errorf("it was opened %d times", w.opened.Load())
	}
}

func TestAnEngineThatCannotBeOpenedSaysWhyAndOthersWork(t *testing.T) {
	w := withMicrovm(t, "")
	w.broken = bothy.Errorf(bothy.CodeEngineMissing, "QEMU is not installed").WithHint("Install it.")
	for n := range 2 {
		_, err := w.Create(w.me(), bothy.SandboxCreate{Engine: "vm"})
		wantCode(t, err, bothy.CodeEngineMissing)
		if bothy.AsError(err).Hint != "Install it." || w.opened.Load() != int32(n+1) {
			t.Errorf("%v, tried %d times", err, w.opened.Load())
		}
	}
	w.create(bothy.SandboxCreate{})
	// After it is installed the server need not be restarted.
	w.broken = nil
	w.info.Acceleration = bothy.AccelerationKVM
	w.create(bothy.SandboxCreate{Engine: "vm"})
	_, err := w.Create(w.me(), bothy.SandboxCreate{Engine: "other"})
	wantCode(t, err, bothy.CodeInvalid)
	if hint := bothy.AsError(err).Hint; !strings.Contains(hint, "fake, vm, auto") {
		t.Errorf("the hint is %q", hint)
	}
}

func TestRequiredAccelerationIsRefusedIfUnavailable(t *testing.T) {
	w := withMicrovm(t, bothy.AccelerationEmulated)
	_, err := w.Create(w.me(), bothy.SandboxCreate{Engine: "vm", RequireAcceleration: true})
	wantCode(t, err, bothy.CodeNoAcceleration)
	_, err = w.Create(w.me(), bothy.SandboxCreate{Engine: bothy.EngineAuto, RequireAcceleration: true})
	wantCode(t, err, bothy.CodeNoAcceleration)
	_, err = w.Create(w.me(), bothy.SandboxCreate{Engine: "fake", RequireAcceleration: true})
	wantCode(t, err, bothy.CodeInvalid)
	if len(w.vms.IDs())+len(w.host.IDs()) != 0 {
		t.Error("a machine was started")
	}
}

func TestRequiredAccelerationAppliesLaterToo(t *testing.T) {
	w := withMicrovm(t, bothy.AccelerationKVM)
	sb := w.create(bothy.SandboxCreate{Engine: "vm", RequireAcceleration: true})
	if sb.Acceleration != bothy.AccelerationKVM {
		t.Fatalf("acceleration %q", sb.Acceleration)
	}
	id, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.info.Acceleration = bothy.AccelerationEmulated
	w.restart()
	_, err = w.Resume(w.me(), sb.ID, bothy.ResumeOptions{})
	wantCode(t, err, bothy.CodeNoAcceleration)
	if got := w.get(sb.ID); got.State != bothy.StatePaused {
		t.Errorf("it is %s", got.State)
	}
	_, err = w.Create(w.me(), bothy.SandboxCreate{SnapshotID: id.ID})
	wantCode(t, err, bothy.CodeNoAcceleration)
	// The requirement does not apply to another engine.
	copied, err := w.Create(w.me(), bothy.SandboxCreate{SnapshotID: id.ID, Engine: "fake"})
	if err != nil || copied.Engine != "fake" || copied.Resumed.Kind != bothy.SnapshotFiles {
		t.Errorf("got %+v, %v", copied, err)
	}
	w.info.Acceleration = bothy.AccelerationKVM
	w.restart()
	if _, err := w.Resume(w.me(), sb.ID, bothy.ResumeOptions{}); err != nil {
		t.Error(err)
	}
}

func TestAutoFollowsThePolicy(t *testing.T) {
	for acceleration, want := range map[bothy.Acceleration]string{bothy.AccelerationKVM: "vm", bothy.AccelerationEmulated: "fake"} {
		w := withMicrovm(t, acceleration)
		if sb := w.create(bothy.SandboxCreate{Engine: bothy.EngineAuto}); sb.Engine != want {
			t.Errorf("%s: auto chose %s, want %s", acceleration, sb.Engine, want)
		}
	}
	w := withMicrovm(t, bothy.AccelerationKVM)
	w.broken = bothy.Errorf(bothy.CodeEngineMissing, "QEMU is not installed")
	for range 3 {
		if sb := w.create(bothy.SandboxCreate{Engine: bothy.EngineAuto}); sb.Engine != "fake" {
			t.Errorf("auto chose %s", sb.Engine)
		}
	}
	if w.opened.Load() != 1 {
		t.Errorf("a missing engine was tried %d times", w.opened.Load())
	}
	w.broken = nil
	w.clock.pass(6 * time.Minute)
	if sb := w.create(bothy.SandboxCreate{Engine: bothy.EngineAuto}); sb.Engine != "vm" {
		t.Errorf("auto chose %s", sb.Engine)
	}
}

func TestAutoAsTheDefaultIsOpenedInAdvance(t *testing.T) {
	w := withMicrovm(t, bothy.AccelerationKVM)
	change := w.change
	w.change = func(o *lifecycle.Options) {
		change(o)
		o.Engine = bothy.EngineAuto
	}
	w.restart()
	w.OpenEngines(t.Context())
	if w.opened.Load() != 1 {
		t.Errorf("opened %d times", w.opened.Load())
	}
	if sb := w.create(bothy.SandboxCreate{}); sb.Engine != "vm" {
		t.Errorf("the default is %s", sb.Engine)
	}
}

func TestEachEngineRecoversItsOwnMachines(t *testing.T) {
	w := withMicrovm(t, bothy.AccelerationEmulated)
	plain, vm := w.create(bothy.SandboxCreate{}), w.create(bothy.SandboxCreate{Engine: "vm"})
	asleep := w.create(bothy.SandboxCreate{Engine: "vm"})
	if _, err := w.Pause(w.me(), asleep.ID, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	w.restart()
	for _, id := range []string{plain.ID, vm.ID} {
		if got := w.get(id); got.State != bothy.StateRunning {
			t.Errorf("%s is %s: %+v", id, got.State, got.Ended)
		}
	}
	sb, err := w.Resume(w.me(), asleep.ID, bothy.ResumeOptions{})
	if err != nil || sb.Engine != "vm" || sb.Resumed.Kind != bothy.SnapshotMemory {
		t.Errorf("got %+v, %v", sb, err)
	}
	copies, err := w.Fork(w.me(), vm.ID, bothy.ForkRequest{Count: 2})
	if err != nil || copies[1].Engine != "vm" || copies[1].Acceleration != bothy.AccelerationEmulated {
		t.Errorf("got %+v, %v", copies, err)
	}
	if len(w.vms.IDs()) != 4 || len(w.host.IDs()) != 1 {
		t.Errorf("vms %v, others %v", w.vms.IDs(), w.host.IDs())
	}
}

func TestMachinesWaitForTheirEngineToOpen(t *testing.T) {
	w := withMicrovm(t, bothy.AccelerationEmulated)
	kept, deleted := w.create(bothy.SandboxCreate{Engine: "vm"}), w.create(bothy.SandboxCreate{Engine: "vm"})
	w.broken = bothy.Errorf(bothy.CodeEngineMissing, "QEMU is not installed")
	w.restart()
	if got := w.get(kept.ID); got.State != bothy.StateRunning || len(w.vms.IDs()) != 2 {
		t.Errorf("it is %s: %+v; machines: %v", got.State, got.Ended, w.vms.IDs())
	}
	_, err := w.Exec(w.me(), kept.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}})
	wantCode(t, err, bothy.CodeSandboxNotReady)
	if !strings.Contains(err.Error(), "engine vm") {
		t.Errorf("using it fails with %v", err)
	}
	if err := w.Terminate(w.me(), deleted.ID); err != nil {
		t.Error(err)
	}
	w.broken = nil
	next := w.create(bothy.SandboxCreate{Engine: "vm"})
	if ids := w.vms.IDs(); len(ids) != 2 || !slices.Contains(ids, kept.ID) || !slices.Contains(ids, next.ID) {
		t.Errorf("once the engine is open, its machines are %v", ids)
	}
	w.clock.pass(time.Minute)
	if _, err := w.Exec(w.me(), kept.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}}); err != nil {
		t.Error(err)
	}
}

func TestAnotherBuildOfTheSecondEngineRestoresTheFiles(t *testing.T) {
	w := withMicrovm(t, bothy.AccelerationEmulated)
	vm := w.create(bothy.SandboxCreate{Engine: "vm"})
	if _, err := w.Pause(w.me(), vm.ID, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	w.info.Build, w.info.Kernel = "vm-2", "6.1-newer"
	w.restart()
	sb, err := w.Resume(w.me(), vm.ID, bothy.ResumeOptions{})
	if err != nil || sb.Resumed.Kind != bothy.SnapshotFiles || sb.Kernel != "6.1-newer" {
		t.Errorf("got %+v, %v", sb, err)
	}
}

func TestAnEmulatedMachineIsGivenMoreTime(t *testing.T) {
	fast, slow := bothy.EngineInfo{Acceleration: bothy.AccelerationKVM}, bothy.EngineInfo{Acceleration: bothy.AccelerationEmulated}
	if fast.Patience(3) != 3 || slow.Patience(3) <= 3 {
		t.Errorf("%d and %d", fast.Patience(3), slow.Patience(3))
	}
}
