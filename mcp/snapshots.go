package mcp

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
)

type pauseIn struct {
	SandboxID string `json:"sandbox_id" jsonschema:"The sandbox's id"`
	Memory    *bool  `json:"memory,omitempty" jsonschema:"Keep memory and processes, not only files; true by default"`
	Name      string `json:"name,omitempty" jsonschema:"A name for the snapshot"`
	Wait      string `json:"wait,omitempty" jsonschema:"store: answer only when the snapshot is in the server's object storage"`
}

type pauseOut struct {
	SandboxID  string          `json:"sandbox_id"`
	SnapshotID string          `json:"snapshot_id"`
	Snapshot   *bothy.Snapshot `json:"snapshot"`
}

type resumeIn struct {
	SandboxID string `json:"sandbox_id" jsonschema:"The id of the paused sandbox, or of its snapshot"`
	Memory    *bool  `json:"memory,omitempty" jsonschema:"Restore memory and processes, not only files; true by default"`
}

type snapshotIn struct {
	SandboxID string `json:"sandbox_id" jsonschema:"The sandbox's id"`
	Memory    *bool  `json:"memory,omitempty" jsonschema:"Keep memory and processes, not only files; true by default"`
	Name      string `json:"name,omitempty" jsonschema:"A name for the snapshot"`
	Wait      string `json:"wait,omitempty" jsonschema:"store: answer only when the snapshot is in the server's object storage"`
}

type forkIn struct {
	SandboxID      string            `json:"sandbox_id" jsonschema:"The sandbox's id"`
	Count          *int              `json:"count,omitempty" jsonschema:"How many copies; 1 by default"`
	TimeoutSeconds *int              `json:"timeout_seconds,omitempty" jsonschema:"After how many seconds the copies end by themselves"`
	Env            map[string]string `json:"env,omitempty" jsonschema:"Additional environment variables for the copies' commands"`
	Metadata       map[string]string `json:"metadata,omitempty" jsonschema:"Labels of the copies"`
	Network        bothy.Network     `json:"network,omitzero"`
}

type forkOut struct {
	Items   []*bothy.Sandbox `json:"items"`
	LeftOut int              `json:"left_out,omitempty" jsonschema:"How many copies were made that are not in items"`
}

type rollbackIn struct {
	SandboxID  string `json:"sandbox_id" jsonschema:"The sandbox's id"`
	SnapshotID string `json:"snapshot_id" jsonschema:"The snapshot to return to"`
}

func (t tools) addSnapshots() {
	add(t, sets, "pause_sandbox", "Pause a sandbox",
		"Freezes a sandbox with its memory, processes and files, and frees what it used. While paused, it costs only storage; resume_sandbox continues it exactly where it was.",
		func(ctx context.Context, req *mcp.CallToolRequest, in pauseIn) ([]mcp.Content, pauseOut, error) {
			progressOf(req).say(ctx, "writing the snapshot")
			n, err := t.Snapshots.Pause(ctx, in.SandboxID, bothy.PauseOptions{FilesOnly: in.Memory != nil && !*in.Memory, Name: in.Name, Wait: bothy.Durable(in.Wait)})
			if err != nil {
				return nil, pauseOut{}, err
			}
			return nil, pauseOut{SandboxID: in.SandboxID, SnapshotID: n.ID, Snapshot: n}, nil
		})
	add(t, sets, "resume_sandbox", "Resume a sandbox",
		"Resumes a paused sandbox. It continues where it was, with the same id.",
		func(ctx context.Context, req *mcp.CallToolRequest, in resumeIn) ([]mcp.Content, *bothy.Sandbox, error) {
			progressOf(req).say(ctx, "waking the sandbox")
			sb, err := t.Snapshots.Resume(ctx, in.SandboxID, bothy.ResumeOptions{FilesOnly: in.Memory != nil && !*in.Memory})
			return nil, sb, err
		})
	add(t, adds, "snapshot_sandbox", "Take a snapshot",
		"Takes a live snapshot of a running sandbox, which keeps running. You can roll back to the snapshot, or start sandboxes from it, any number of times.",
		func(ctx context.Context, req *mcp.CallToolRequest, in snapshotIn) ([]mcp.Content, *bothy.Snapshot, error) {
			progressOf(req).say(ctx, "writing the snapshot")
			n, err := t.Snapshots.CreateSnapshot(ctx, in.SandboxID, bothy.SnapshotCreate{FilesOnly: in.Memory != nil && !*in.Memory, Name: in.Name, Wait: bothy.Durable(in.Wait)})
			return nil, n, err
		})
	add(t, adds, "fork_sandbox", "Fork a sandbox",
		"Makes running copies of a sandbox with its memory, processes and files. The original keeps running. Each copy uses up one of your concurrent sandboxes.",
		func(ctx context.Context, req *mcp.CallToolRequest, in forkIn) ([]mcp.Content, forkOut, error) {
			count := 1
			if in.Count != nil {
				count = *in.Count
			}
			if count < 1 {
				return nil, forkOut{}, bothy.Errorf(bothy.CodeInvalid, "count is %d", count).WithHint("Give how many copies to make, from 1, or leave it out for one.")
			}
			progressOf(req).say(ctx, "copying the sandbox")
			items, err := t.Snapshots.Fork(ctx, in.SandboxID, bothy.ForkRequest{
				Count: count, TimeoutSeconds: in.TimeoutSeconds, Env: in.Env, Metadata: in.Metadata, Network: chosen(in.Network),
			})
			if items == nil {
				items = []*bothy.Sandbox{}
			}
			return nil, forkOut{Items: items}, err
		})
	add(t, destroys, "rollback_sandbox", "Roll a sandbox back",
		"Returns a sandbox to its state at a snapshot: later processes and files are lost from it. Its state until now is kept as another snapshot.",
		func(ctx context.Context, req *mcp.CallToolRequest, in rollbackIn) ([]mcp.Content, *bothy.Sandbox, error) {
			progressOf(req).say(ctx, "going back to the snapshot")
			sb, err := t.Snapshots.Rollback(ctx, in.SandboxID, in.SnapshotID)
			return nil, sb, err
		})
}
