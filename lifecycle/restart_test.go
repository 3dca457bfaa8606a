package lifecycle_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
	"github.com/bothy-dev/bothy/lifecycle"
)

// A sandbox that was lost with its host is restarted under its id with all its settings.
func TestAFailedSandboxIsRestarted(t *testing.T) {
	w := newWorld(t)
	given := bothy.SandboxCreate{
		Name: "mine", TimeoutSeconds: seconds(1200), OnTimeout: bothy.TimeoutPause, IdleSeconds: 500, AutoResume: true, OnHostLoss: bothy.HostLossFail, CheckpointSeconds: 60,
		Env: map[string]string{"A": "b"}, Metadata: map[string]string{"team": "red"}, Network: &bothy.Network{Mode: bothy.NetworkOpen},
		Secrets: []bothy.Secret{{Name: "TOKEN", Value: "of-the-secret", Hosts: []string{"api.example.com"}}},
	}
	before := w.create(given)
	w.clock.pass(time.Minute)
	w.reboot(time.Second)
	if sb := w.get(before.ID); sb.State != bothy.StateFailed || sb.Ended.Reason != bothy.EndHostRestart {
		t.Fatalf("it is %s, %+v", sb.State, sb.Ended)
	}
	_, err := w.Exec(w.me(), before.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}})
	if e := bothy.AsError(err); e.Code != bothy.CodeSandboxEnded || !strings.Contains(e.Hint, "/v1/sandboxes/"+before.ID+"/restart") {
		t.Errorf("using it: %v", err)
	}
	sb, err := w.Restart(w.me(), before.ID)
	if err != nil {
		t.Fatal(err)
	}
	if sb.ID != before.ID || sb.State != bothy.StateRunning || sb.Ended != nil || sb.HostLoss != nil || sb.Resumed != nil || sb.CheckpointAt != nil ||
		!sb.CreatedAt.Equal(before.CreatedAt) || sb.StartedAt == nil || !sb.StartedAt.Equal(w.clock.Now()) || !sb.ExpiresAt.Equal(w.clock.Now().Add(20*time.Minute)) {
		t.Errorf("it was restarted as %+v", sb)
	}
	if sb.Name != "mine" || sb.OnTimeout != bothy.TimeoutPause || sb.IdleSeconds != 500 || !sb.AutoResume || sb.OnHostLoss != bothy.HostLossFail || sb.CheckpointSeconds != 60 ||
		!maps.Equal(sb.Env, given.Env) || !maps.Equal(sb.Metadata, given.Metadata) || sb.Network.Mode != bothy.NetworkOpen || len(sb.SecretNames) != 1 {
		t.Errorf("it has other settings: %+v", sb)
	}
	if got := w.gateways.last().secretValues(); len(got) != 1 || got[0] != "of-the-secret" {
		t.Errorf("its gateway has the secrets %v", got)
	}
	if got := w.guests.last().identity(); got.SandboxID != sb.ID || got.Env["A"] != "b" {
		t.Errorf("its guest has the identity %+v", got)
	}
	if e := w.events(sb.ID, bothy.EventSandboxRestarted); len(e) != 1 || e[0]["after"] != string(bothy.EndHostRestart) || e[0]["template"] != sb.Template {
		t.Errorf("the events are %v", e)
	}
	if _, err := w.Exec(w.me(), sb.ID, bothy.ExecRequest{Command: bothy.Command{Line: "x"}}); err != nil {
		t.Errorf("using it: %v", err)
	}
	if got := w.get(sb.ID); got.State != bothy.StateRunning {
		t.Errorf("it is stored as %s", got.State)
	}
	// It is a normal sandbox from then on.
	w.clock.pass(time.Minute)
	w.wantCheckpoints("a minute later", sb.ID, 1)
	w.restart()
	if got := w.get(sb.ID); got.State != bothy.StateRunning {
		t.Errorf("after a restart of the server it is %s", got.State)
	}
}

// A sandbox that was made from a snapshot is restarted from it, or from its template if the snapshot is
// gone.
func TestARestartFromASnapshot(t *testing.T) {
	w := newWorld(t)
	n, err := w.CreateSnapshot(w.me(), w.create(bothy.SandboxCreate{}).ID, bothy.SnapshotCreate{Name: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	id := w.create(bothy.SandboxCreate{SnapshotID: n.ID}).ID
	for _, there := range []bool{true, false} {
		if !there {
			if err := w.DeleteSnapshot(w.me(), n.ID); err != nil {
				t.Fatal(err)
			}
		}
		m := w.machine(id)
		m.End(bothy.Exit{Reason: bothy.EndOutOfMemory, Detail: "no memory is left"})
		eventually(t, "it has failed", func() bool { return w.get(id).State == bothy.StateFailed })
		sb, err := w.Restart(w.me(), id)
		if err != nil {
			t.Fatal(err)
		}
		if from := sb.Resumed != nil && sb.Resumed.SnapshotID == n.ID; sb.State != bothy.StateRunning || from != there {
			t.Errorf("with the snapshot present %v it is %s, resumed as %+v", there, sb.State, sb.Resumed)
		}
	}
}

// Only failed sandboxes can be restarted, and a failed restart can be repeated.
func TestARestartIsRefused(t *testing.T) {
	w := newWorld(t)
	runs, sleeps, ended, gone := w.create(bothy.SandboxCreate{}).ID, w.create(bothy.SandboxCreate{}).ID, w.create(bothy.SandboxCreate{}).ID, w.create(bothy.SandboxCreate{}).ID
	if _, err := w.Pause(w.me(), sleeps, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := w.Terminate(w.me(), ended); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{runs, sleeps, ended} {
		before := w.get(id)
		_, err := w.Restart(w.me(), id)
		wantCode(t, err, bothy.CodeConflict)
		if bothy.AsError(err).Hint == "" {
			t.Errorf("there is no hint: %v", err)
		}
		if after := w.get(id); after.State != before.State {
			t.Errorf("it was %s and is %s", before.State, after.State)
		}
	}
	_, err := w.Restart(as(t, "others"), runs)
	wantCode(t, err, bothy.CodeSandboxNotFound)
	w.machine(gone).End(bothy.Exit{Reason: bothy.EndError, Detail: "it broke"})
	eventually(t, "it has failed", func() bool { return w.get(gone).State == bothy.StateFailed })
	remove := failpoint.Set("lifecycle.started", func() error { return errors.New("no") })
	if _, err := w.Restart(w.me(), gone); err == nil {
		t.Error("the restart succeeded although the engine fails")
	}
	remove()
	if sb := w.get(gone); sb.State != bothy.StateFailed || sb.Ended == nil || sb.Ended.Reason != bothy.EndError {
		t.Errorf("it is %s, %+v", sb.State, sb.Ended)
	}
	if sb, err := w.Restart(w.me(), gone); err != nil || sb.State != bothy.StateRunning {
		t.Errorf("another attempt: %+v %v", sb, err)
	}
}

// A sandbox is restarted only where its labels are, unless there are no labels any more because the server
// has left its cluster.
func TestARestartNeedsTheHostLabels(t *testing.T) {
	w := newWorld(t)
	labels := map[string]string{"zone": "a"}
	w.change = func(o *lifecycle.Options) {
		if labels != nil {
			withLabels(labels)(o)
		}
	}
	w.restart()
	id := w.create(bothy.SandboxCreate{HostLabels: map[string]string{"zone": "a"}}).ID
	for name, c := range map[string]struct {
		labels map[string]string
		want   bothy.Code
	}{
		"other":   {map[string]string{"zone": "b"}, bothy.CodeCapacity},
		"same":    {map[string]string{"zone": "a"}, ""},
		"no more": {nil, ""},
	} {
		if sb := w.get(id); sb.State == bothy.StateRunning {
			w.machine(id).End(bothy.Exit{Reason: bothy.EndError, Detail: "it broke"})
			eventually(t, "it has failed", func() bool { return w.get(id).State == bothy.StateFailed })
		}
		labels = c.labels
		w.restart()
		if _, err := w.Restart(w.me(), id); bothy.ErrorCode(err) != c.want {
			t.Errorf("with %s labels: %v", name, err)
		}
	}
}
