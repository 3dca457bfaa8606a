package lifecycle_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// notGiven are the fields of a create request that the original of these tests does not set.
var notGiven = map[string]string{
	"SnapshotID": "the original is made from a template",
	"Size":       "it is a name for CPU, MemoryMB and DiskMB",
	"Repo":       "it is cloned once, into the files",
	"RepoToken":  "it is among the Secrets",
}

// notCopied are the fields of a sandbox that no kind of copy has from its original.
var notCopied = map[string]string{
	"ID":                "each sandbox has its own",
	"CreatedAt":         "when the copy was made",
	"StartedAt":         "when the copy was started",
	"ExpiresAt":         "it is counted from the copy's start",
	"CheckpointAt":      "the original's checkpoints are of the original",
	"Checkpoints":       "the original's checkpoints are of the original",
	"ParentSnapshotID":  "what the copy was made from",
	"ParentSandboxID":   "what the copy was made from",
	"ForkedAt":          "what the copy was made from",
	"HeadSnapshotID":    "what the copy was made from",
	"Ended":             "the copy runs",
	"Health":            "it is of the machine, and not stored",
	"Ending":            "the copy runs",
	"Resumed":           "how the copy was started",
	"HostLoss":          "what happened to the original",
	"SnapshotID":        "the copy was never paused",
	"EarlierSnapshotID": "the copy was never paused",
	"OwnSnapshotID":     "the copy was never paused",
	"Version":           "of the copy's row",
	"GuestKey":          "each guest has its own",
	"SealedSecrets":     "they are sealed for one sandbox",
	"EngineState":       "of the copy's machine",
	"MeterState":        "of the copy's run",
	"Moving":            "the copy is not being moved",
	"Processor":         "of what the copy restored",
	"Pooled":            "the copy has an owner",
	"Key":               "the copy was made by another request",
	"KeyPrint":          "the copy was made by another request",
	"Forking":           "only while a fork makes the copy",
	"CPULevel":          "of the server that started the copy",
}

// notForked and notFromSnapshot are those that only one kind of copy does not have.
var (
	notForked       = map[string]string{"Name": "a fork is given its own", "Budget": "it is on BudgetRoot, which all forks share"}
	notFromSnapshot = map[string]string{
		"Name": "it is given its own", "SecretNames": "secrets never are in a snapshot", "Budget": "it is on BudgetRoot, if that still exists",
	}
	// notRestarted are those that the sandbox itself does not keep.
	notRestarted = map[string]string{
		"StartedAt": "when it was restarted", "ExpiresAt": "it is counted from the restart", "Version": "it grows",
		"GuestKey": "each run has its own", "EngineState": "of the new machine", "MeterState": "of the new run",
		"CheckpointAt": "they are lost", "Checkpoints": "they are lost", "HeadSnapshotID": "it starts over", "Ended": "it runs again", "Ending": "it runs again",
		"Resumed": "how it was restarted", "HostLoss": "it is lost", "SnapshotID": "its pauses are lost", "EarlierSnapshotID": "its pauses are lost", "OwnSnapshotID": "its pauses are lost",
		"Moving": "it is not being moved", "Health": "of the machine, and not stored", "Processor": "of the new machine", "Pooled": "it has an owner", "Forking": "its fork is over", "CPULevel": "of the server that restarted it", "ParentSnapshotID": "the original is made from a template",
		"ParentSandboxID": "the original is made from a template", "ForkedAt": "the original is made from a template",
	}
)

// TestCopiesHaveEverySetting makes a sandbox with every setting there is, and compares its fields with
// those of its copies. A new field must be copied, or be listed above with the reason why not.
func TestCopiesHaveEverySetting(t *testing.T) {
	m := newMetered(t, withLabels(map[string]string{"zone": "a"}))
	m.closeServer()
	m.acceleration = bothy.AccelerationKVM
	m.open()
	given := bothy.SandboxCreate{
		Template: "t", Name: "original", CPU: 2, MemoryMB: 300, DiskMB: 400, Network: &bothy.Network{Mode: bothy.NetworkRestricted, AllowDomains: []string{"example.com"}},
		TimeoutSeconds: seconds(1200), OnTimeout: bothy.TimeoutPause, IdleSeconds: 500, AutoResume: true, OnHostLoss: bothy.HostLossFail, CheckpointSeconds: 60,
		Env: map[string]string{"A": "b"}, Secrets: []bothy.Secret{{Name: "TOKEN", Value: "of-the-secret", Hosts: []string{"api.example.com"}}},
		Metadata: map[string]string{"team": "red"}, Engine: "fake", RequireAcceleration: true, EndWhenIdle: true, Budget: 1000, HostLabels: map[string]string{"zone": "a"},
	}
	for f, v := range reflect.ValueOf(given).Fields() {
		if set := !v.IsZero(); set == (notGiven[f.Name] != "") {
			t.Errorf("%s of a create request is set: %v. Set it here, or list it in notGiven.", f.Name, set)
		}
	}
	ctx, _ := m.once("key")
	made, err := m.Create(ctx, given)
	if err != nil {
		t.Fatal(err)
	}
	original := m.row(made.ID)

	forks, err := m.Fork(m.me(), original.ID, bothy.ForkRequest{Secrets: true})
	if err != nil {
		t.Fatal(err)
	}
	wantCopied(t, "a fork", original, m.row(forks[0].ID), notCopied, notForked)

	n, err := m.CreateSnapshot(m.me(), original.ID, bothy.SnapshotCreate{})
	if err != nil {
		t.Fatal(err)
	}
	wantCopied(t, "a sandbox from a snapshot", original, m.row(m.create(bothy.SandboxCreate{SnapshotID: n.ID}).ID), notCopied, notFromSnapshot)

	m.machine(original.ID).End(bothy.Exit{Reason: bothy.EndError, Detail: "it broke"})
	m.wantState(original.ID, bothy.StateFailed)
	if _, err := m.Restart(m.me(), original.ID); err != nil {
		t.Fatal(err)
	}
	wantCopied(t, "a restarted sandbox", original, m.row(original.ID), notRestarted)
}

// wantCopied compares each field of a sandbox's row with that of a copy.
func wantCopied(t *testing.T, what string, original, copied *store.Sandbox, except ...map[string]string) {
	t.Helper()
	have, got := settings(original), settings(copied)
	excepted := func(name string) bool {
		return slices.ContainsFunc(except, func(m map[string]string) bool { return m[name] != "" })
	}
	for name, v := range have {
		switch {
		case excepted(name):
		case v.IsZero():
			t.Errorf("%s of the original is empty: set it in this test, or list it as not copied", name)
		case !reflect.DeepEqual(v.Interface(), got[name].Interface()):
			t.Errorf("%s has %v as %s, and the original %v: copy it, or list it as not copied", what, got[name], name, v)
		}
	}
	for _, m := range except {
		for name := range m {
			if _, ok := have[name]; !ok {
				t.Errorf("%s is listed as not copied, and a sandbox has no such field", name)
			}
		}
	}
}

// settings are the fields of a sandbox's row, also of what clients see of it.
func settings(sb *store.Sandbox) map[string]reflect.Value {
	all := map[string]reflect.Value{}
	for f, v := range reflect.ValueOf(*sb).Fields() {
		if !f.Anonymous {
			all[f.Name] = v
		}
	}
	for f, v := range reflect.ValueOf(sb.Sandbox).Fields() {
		all[f.Name] = v
	}
	return all
}

// What a request sets counts more than what the snapshot has.
func TestARequestOverridesWhatASnapshotHas(t *testing.T) {
	w := newWorld(t)
	from := w.create(bothy.SandboxCreate{
		TimeoutSeconds: seconds(1200), OnTimeout: bothy.TimeoutPause, IdleSeconds: 500, EndWhenIdle: true, OnHostLoss: bothy.HostLossFail, CheckpointSeconds: 60,
		Metadata: map[string]string{"team": "red"}, Env: map[string]string{"A": "1", "B": "1"},
	})
	n, err := w.CreateSnapshot(w.me(), from.ID, bothy.SnapshotCreate{})
	if err != nil {
		t.Fatal(err)
	}
	sb := w.row(w.create(bothy.SandboxCreate{
		SnapshotID: n.ID, TimeoutSeconds: seconds(60), OnTimeout: bothy.TimeoutTerminate, IdleSeconds: 50, OnHostLoss: bothy.HostLossPause, CheckpointSeconds: 10,
		Metadata: map[string]string{}, Env: map[string]string{"B": "2"},
	}).ID)
	if sb.TimeoutSeconds != 60 || sb.OnTimeout != bothy.TimeoutTerminate || sb.IdleSeconds != 50 || sb.EndWhenIdle || sb.OnHostLoss != bothy.HostLossPause ||
		sb.CheckpointSeconds != 10 || len(sb.Metadata) != 0 || sb.Env["A"] != "1" || sb.Env["B"] != "2" {
		t.Errorf("it was created as %+v", sb)
	}
}
