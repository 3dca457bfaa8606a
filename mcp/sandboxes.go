package mcp

import (
	"context"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
)

// createIn is a bothy.SandboxCreate as a model sees it: with the same fields, so that one can be
// converted to the other. What a model sends stays in its context, so it sends no secrets.
type createIn struct {
	Template            string            `json:"template,omitempty" jsonschema:"What the sandbox starts from: python-3.12 (the default, with common libraries), python-3.12-bare, node-22, debian-12, ubuntu-24.04, or one of your own"`
	SnapshotID          string            `json:"snapshot_id,omitempty" jsonschema:"Start from this snapshot instead of a template"`
	Name                string            `json:"name,omitempty" jsonschema:"A name to find it by"`
	CPU                 float64           `json:"cpu,omitempty" jsonschema:"Number of CPUs, 0.1 to 4; 1 by default"`
	MemoryMB            int               `json:"memory_mb,omitempty" jsonschema:"Memory in MiB; 512 by default"`
	DiskMB              int               `json:"disk_mb,omitempty" jsonschema:"Disk in MiB; 2048 by default"`
	Size                string            `json:"size,omitempty" jsonschema:"small (1 CPU, 512 MB), medium (2 CPUs, 2 GB) or large (4 CPUs, 8 GB)"`
	Network             *bothy.Network    `json:"network,omitempty"`
	TimeoutSeconds      *int              `json:"timeout_seconds,omitempty" jsonschema:"After how many seconds the sandbox ends by itself; 600 by default, 0 for never"`
	OnTimeout           bothy.OnTimeout   `json:"on_timeout,omitempty" jsonschema:"terminate (the default) or pause"`
	IdleSeconds         int               `json:"idle_seconds,omitempty" jsonschema:"Pause the sandbox when it has been idle for this long"`
	AutoResume          bool              `json:"auto_resume,omitempty" jsonschema:"Resume the sandbox automatically when it is used while paused"`
	OnHostLoss          bothy.OnHostLoss  `json:"on_host_loss,omitempty" jsonschema:"What becomes of a running sandbox when its host is lost: pause (the default) at its last snapshot, resume from it on another host at once, or fail"`
	CheckpointSeconds   int               `json:"checkpoint_seconds,omitempty" jsonschema:"How often a checkpoint is taken while it runs, 10 or more seconds: the loss of its host takes no more with it than what happened since; 0, the default, for never"`
	Env                 map[string]string `json:"env,omitempty" jsonschema:"Environment variables for every command. Not for secrets"`
	Secrets             []bothy.Secret    `json:"-"`
	Metadata            map[string]string `json:"metadata,omitempty" jsonschema:"Your own labels"`
	Engine              string            `json:"engine,omitempty" jsonschema:"What gives the sandbox its kernel: gvisor (a kernel in software), microvm (a virtual machine, the stronger wall) or auto; the server's choice by default"`
	RequireAcceleration bool              `json:"require_acceleration,omitempty" jsonschema:"Refuse a virtual machine that would be emulated, and so slow"`
	EndWhenIdle         bool              `json:"-"`
	Budget              float64           `json:"budget,omitempty" jsonschema:"What it and everything forked from it may spend, in the currency of the server's prices; when that is used up they are paused. 0, the default, is no limit"`
	HostLabels          map[string]string `json:"host_labels,omitempty" jsonschema:"Only on a host of the cluster with these labels, all of them, such as {\"zone\":\"a\"}"`
	Repo                string            `json:"repo,omitempty" jsonschema:"A public git repository to clone below /workspace, as an https URL, with a branch, tag or commit after #. The network must allow its host"`
	RepoToken           string            `json:"-"`
}

type listIn struct {
	State  string `json:"state,omitempty" jsonschema:"Only those that are starting, running, pausing, paused, resuming, stopping, stopped or failed; by default all that have not ended"`
	Name   string `json:"name,omitempty" jsonschema:"Only those with this name"`
	Limit  int    `json:"limit,omitempty" jsonschema:"At most this many, 1 to 1000; 100 by default"`
	Cursor string `json:"cursor,omitempty" jsonschema:"next_cursor of the previous answer"`
}

type sandboxIn struct {
	SandboxID string `json:"sandbox_id" jsonschema:"The sandbox's id"`
}

type nothing struct{}

type networkIn struct {
	SandboxID string        `json:"sandbox_id" jsonschema:"The sandbox's id"`
	Network   bothy.Network `json:"network"`
}

type ended struct {
	SandboxID string       `json:"sandbox_id"`
	State     bothy.State  `json:"state"`
	Ended     *bothy.Ended `json:"ended,omitempty"`
}

func (t tools) addSandboxes() {
	add(t, adds, "create_sandbox", "Create a sandbox",
		"Creates a new Linux sandbox and returns when it is ready for commands. It uses up one of your concurrent sandboxes until it is terminated, paused or out of time.",
		func(ctx context.Context, req *mcp.CallToolRequest, in createIn) (_ []mcp.Content, _ *bothy.Sandbox, err error) {
			if !bothy.MayGoElsewhere(ctx) { // nothing is reported before it is known whether it starts here
				progressOf(req).say(ctx, "starting the sandbox")
			}
			sb, err := t.Sandboxes.Create(ctx, bothy.SandboxCreate(in))
			return nil, sb, err
		})
	add(t, reads, "list_sandboxes", "List sandboxes",
		"Lists your sandboxes, newest first. Changes nothing.",
		func(ctx context.Context, _ *mcp.CallToolRequest, in listIn) ([]mcp.Content, bothy.Page[*bothy.Sandbox], error) {
			f := bothy.SandboxFilter{States: bothy.LiveStates, Name: in.Name, Limit: in.Limit, Cursor: in.Cursor}
			if in.State != "" {
				f.States = []bothy.State{bothy.State(in.State)}
			}
			page, err := t.Sandboxes.List(ctx, f)
			if n := fitting(page.Items); n < len(page.Items) { // the next page begins after those that fit
				f.Limit = max(n, 1)
				page, err = t.Sandboxes.List(ctx, f)
			}
			if page.Items == nil {
				page.Items = []*bothy.Sandbox{}
			}
			return nil, page, err
		})
	add(t, reads, "get_sandbox_limits", "Show limits",
		"Shows how many sandboxes, of what size, you may have, and how many are in use. Changes nothing.",
		func(ctx context.Context, _ *mcp.CallToolRequest, _ nothing) ([]mcp.Content, *bothy.PlanLimits, error) {
			l, err := t.Limits.Limits(ctx)
			return nil, l, err
		})
	add(t, sets, "set_network", "Set the network policy",
		"Changes what a running sandbox may reach. Takes effect immediately: open connections that are no longer allowed are cut.",
		func(ctx context.Context, _ *mcp.CallToolRequest, in networkIn) ([]mcp.Content, *bothy.Sandbox, error) {
			sb, err := t.Sandboxes.Update(ctx, in.SandboxID, bothy.SandboxUpdate{Network: &in.Network})
			return nil, sb, err
		})
	add(t, adds, "restart_sandbox", "Restart a failed sandbox",
		"Starts a sandbox that has failed again, under its id and with its settings, from what it was made from. What it did until then is lost. For one that is paused use resume_sandbox.",
		func(ctx context.Context, _ *mcp.CallToolRequest, in sandboxIn) ([]mcp.Content, *bothy.Sandbox, error) {
			sb, err := t.Sandboxes.Restart(ctx, in.SandboxID)
			return nil, sb, err
		})
	add(t, destroys, "terminate_sandbox", "Terminate a sandbox",
		"Ends a sandbox for good: its processes, memory and files are lost. Its snapshots stay. Terminating an ended sandbox does nothing.",
		func(ctx context.Context, _ *mcp.CallToolRequest, in sandboxIn) ([]mcp.Content, ended, error) {
			out := ended{SandboxID: in.SandboxID}
			if err := t.Sandboxes.Terminate(ctx, in.SandboxID); err != nil {
				return nil, out, err
			}
			sb, err := t.Sandboxes.Get(ctx, in.SandboxID)
			if err == nil {
				out.State, out.Ended = sb.State, sb.Ended
			}
			return nil, out, err
		})
}

// progress tells a client that requested it how far a call is.
type progress struct {
	req  *mcp.CallToolRequest
	to   any
	n    float64
	last time.Time
}

// progressEvery limits how often that is done.
const progressEvery = 250 * time.Millisecond

func progressOf(req *mcp.CallToolRequest) *progress {
	return &progress{req: req, to: req.Params.GetProgressToken()}
}

func (p *progress) wanted() bool { return p.to != nil }

func (p *progress) say(ctx context.Context, message string) {
	if !p.wanted() || time.Since(p.last) < progressEvery {
		return
	}
	p.n++
	p.last = time.Now()
	// Progress is optional: a client that has left is noticed elsewhere.
	_ = p.req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: p.to, Progress: p.n, Message: message})
}

// chosen returns the policy that the caller named, or nil.
func chosen(n bothy.Network) *bothy.Network {
	if n.Mode == "" {
		return nil
	}
	return &n
}
