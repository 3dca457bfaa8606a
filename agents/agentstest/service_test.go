package agentstest_test

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/lib/environments"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/param"

	"github.com/bothy-dev/bothy/agents/agentstest"
)

const environment, key = "env_test", "key-of-the-environment"

func newService(t *testing.T, lease time.Duration) *agentstest.Service {
	q := agentstest.New(environment, key, lease)
	t.Cleanup(q.Close)
	stop := time.AfterFunc(time.Minute, q.Close) // so that no call waits forever
	t.Cleanup(func() { stop.Stop() })
	return q
}

func newClient(q *agentstest.Service) anthropic.Client {
	opts := []option.RequestOption{option.WithBaseURL(q.URL)}
	return anthropic.Client{Options: opts, Beta: anthropic.NewBetaService(opts...)}
}

// converse goes through everything that a worker of the official SDKs must be able to do with the service.
func converse(t *testing.T, q *agentstest.Service, memories string) {
	store := q.MemoryStore(memories, "read_write", map[string]string{"/a.md": "one", "/b.md": "two", "/c.md": "three"})
	s := q.Session(nil, store)
	want := func(got agentstest.Result, part string, failed bool) {
		t.Helper()
		if !strings.Contains(got.Text, part) || got.IsError != failed {
			t.Errorf("got %.200q, failed %v; want a part %q, failed %v", got.Text, got.IsError, part, failed)
		}
	}
	want(s.Call("bash", map[string]any{"command": "A=1; echo ü"}), "ü", false)
	want(s.Call("bash", map[string]any{"command": "echo $A; false"}), "1", true)
	want(s.Call("bash", map[string]any{"restart": true}), "restarted", false)
	want(s.Call("write", map[string]any{"file_path": "a b.txt", "content": "one\ntwo\n"}), "wrote", false)
	want(s.Call("read", map[string]any{"file_path": "a b.txt", "view_range": []int{2, 2}}), "two", false)
	want(s.Call("edit", map[string]any{"file_path": "a b.txt", "old_string": "two", "new_string": "2"}), "edited", false)
	want(s.Call("glob", map[string]any{"pattern": "*.txt"}), "a b.txt", false)
	want(s.Call("grep", map[string]any{"pattern": "^2$"}), "2", false)
	want(s.Call("bash", map[string]any{"command": "cat '" + memories + "/b.md'; printf ONE > '" + memories + "/a.md'"}), "two", false)
	s.Idle()
	q.AwaitRest(s.ID)
	if got := store.Files(); got["/a.md"] != "ONE" || len(got) != 3 {
		t.Errorf("the memories are %q", got)
	}
	want(s.Call("bash", map[string]any{"command": "echo again"}), "again", false)
	s.End()
	q.AwaitRest(s.ID)
	for _, f := range q.Faults() {
		t.Errorf("the service says: %s", f)
	}
}

// The Go SDK's worker and Bothy's use the same service.
func TestGoWorker(t *testing.T) {
	q := newService(t, 10*time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	idle := time.Second
	w := environments.NewEnvironmentWorker(newClient(q), environments.EnvironmentWorkerOptions{
		EnvironmentID: environment, EnvironmentKey: key, Workdir: t.TempDir(), MaxIdle: &idle, Logger: slog.New(slog.DiscardHandler),
	})
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	converse(t, q, filepath.Join(t.TempDir(), "memories"))
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The Python SDK's worker too, if BOTHY_AGENTS_PYTHON names a Python with requirements.txt.
func TestPythonWorker(t *testing.T) {
	python := os.Getenv("BOTHY_AGENTS_PYTHON")
	if python == "" {
		t.Skip("BOTHY_AGENTS_PYTHON names no Python with agents/agentstest/requirements.txt")
	}
	q := newService(t, 10*time.Second)
	cmd := exec.CommandContext(t.Context(), python, "testdata/worker.py", q.URL, environment, t.TempDir())
	cmd.Env = append(os.Environ(), "ANTHROPIC_ENVIRONMENT_KEY="+key)
	var log strings.Builder
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	converse(t, q, filepath.Join(t.TempDir(), "memories"))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if t.Failed() {
		t.Log(log.String())
	}
}

// Answers of the service have all fields that the SDK's types require, and no others.
func TestAnswers(t *testing.T) {
	q := newService(t, time.Minute)
	ctx, c := t.Context(), newClient(q)
	auth := []option.RequestOption{option.WithAuthToken(key), option.WithMaxRetries(0)}
	work := c.Beta.Environments.Work
	none, err := work.Poll(ctx, environment, anthropic.BetaEnvironmentWorkPollParams{}, auth...)
	if err != nil || none != nil && none.ID != "" {
		t.Fatalf("an empty queue: %+v, %v", none, err)
	}
	s := q.Session(nil, q.MemoryStore("/mnt/memory/a", "read_only", nil))
	s.Start("bash", map[string]any{"command": "true"})
	item, err := work.Poll(ctx, environment, anthropic.BetaEnvironmentWorkPollParams{BlockMs: param.NewOpt(int64(900))}, auth...)
	if err != nil {
		t.Fatal(err)
	}
	if j := item.JSON; len(j.ExtraFields) > 0 || !j.ID.Valid() || !j.Data.Valid() || !j.Secret.Valid() || !j.State.Valid() || !j.Type.Valid() || item.State != "queued" {
		t.Errorf("work: %s", item.RawJSON())
	}
	acked, err := work.Ack(ctx, item.ID, anthropic.BetaEnvironmentWorkAckParams{EnvironmentID: environment}, auth...)
	if err != nil || acked.State != "starting" || acked.JSON.Secret.Valid() {
		t.Errorf("acknowledged: %+v, %v", acked, err)
	}
	beat := func(expected string) (*anthropic.BetaSelfHostedWorkHeartbeatResponse, error) {
		return work.Heartbeat(ctx, item.ID, anthropic.BetaEnvironmentWorkHeartbeatParams{EnvironmentID: environment, ExpectedLastHeartbeat: param.NewOpt(expected)}, auth...)
	}
	first, err := beat("NO_HEARTBEAT")
	if err != nil || len(first.JSON.ExtraFields) > 0 || !first.LeaseExtended || first.State != "active" || first.TTLSeconds != 60 {
		t.Errorf("the first heartbeat: %+v, %v", first, err)
	}
	if _, err := beat("NO_HEARTBEAT"); !isStatus(err, 412) {
		t.Errorf("a heartbeat of another lease: %v", err)
	}
	if _, err := beat(first.LastHeartbeat); err != nil {
		t.Errorf("the second heartbeat: %v", err)
	}
	got, err := c.Beta.Sessions.Get(ctx, s.ID, anthropic.BetaSessionGetParams{}, auth...)
	if err != nil || len(got.JSON.ExtraFields) > 0 || len(got.Agent.JSON.ExtraFields) > 0 || got.Resources[0].AsMemoryStore().MountPath != "/mnt/memory/a" {
		t.Errorf("the session: %+v, %v", got, err)
	}
	events := c.Beta.Sessions.Events.ListAutoPaging(ctx, s.ID, anthropic.BetaSessionEventListParams{Limit: param.NewOpt(int64(10))}, auth...)
	if !events.Next() || len(events.Current().AsAgentToolUse().JSON.ExtraFields) > 0 || events.Current().AsAgentToolUse().Name != "bash" {
		t.Errorf("the events: %+v, %v", events.Current(), events.Err())
	}
	if _, err := c.Beta.MemoryStores.Memories.List(ctx, "memstore_0001", anthropic.BetaMemoryStoreMemoryListParams{}, auth...); !isStatus(err, 401) {
		t.Errorf("the environment key opens memories: %v", err)
	}
	if f := q.Faults(); len(f) > 0 {
		t.Error(f)
	}
	if _, err := c.Beta.Sessions.Get(ctx, s.ID, anthropic.BetaSessionGetParams{}, option.WithAuthToken(key), option.WithAPIKey("another"), option.WithMaxRetries(0)); !isStatus(err, 401) || len(q.Faults()) != 1 {
		t.Errorf("two credentials: %v, %q", err, q.Faults())
	}
}

func isStatus(err error, status int) bool {
	e, ok := err.(*anthropic.Error)
	return ok && e.StatusCode == status
}
