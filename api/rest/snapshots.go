package rest

import (
	"context"
	"net/http"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
)

// PauseRequest says how to pause.
type PauseRequest struct {
	Memory *bool         `json:"memory,omitempty"`
	Name   string        `json:"name,omitempty"`
	Wait   bothy.Durable `json:"wait,omitempty"`
}

// Paused is the answer to a pause.
type Paused struct {
	SnapshotID string          `json:"snapshot_id"`
	Snapshot   *bothy.Snapshot `json:"snapshot"`
}

// ResumeRequest says how to resume.
type ResumeRequest struct {
	Memory *bool `json:"memory,omitempty"`
}

// SnapshotRequest names a live snapshot, and says what it contains.
type SnapshotRequest struct {
	Memory *bool         `json:"memory,omitempty"`
	Name   string        `json:"name,omitempty"`
	Wait   bothy.Durable `json:"wait,omitempty"`
}

// ForkRequest is the wire form of a request for copies.
type ForkRequest struct {
	Count          int               `json:"count,omitempty"`
	Name           string            `json:"name,omitempty"`
	TimeoutSeconds *int              `json:"timeout_seconds,omitempty"`
	Env            map[string]string `json:"env,omitempty"`
	Metadata       map[string]string `json:"metadata,omitempty"`
	Network        *bothy.Network    `json:"network,omitempty"`
	Secrets        bool              `json:"secrets,omitempty"`
}

func (f ForkRequest) request() bothy.ForkRequest {
	return bothy.ForkRequest{
		Count: max(f.Count, 1), Name: f.Name, TimeoutSeconds: f.TimeoutSeconds,
		Env: f.Env, Metadata: f.Metadata, Network: f.Network, Secrets: f.Secrets,
	}
}

// RollbackRequest names the snapshot to return to.
type RollbackRequest struct {
	SnapshotID string `json:"snapshot_id" minLength:"1"`
}

type (
	pauseInput struct {
		ID   string `path:"id" doc:"The sandbox's id."`
		Body *PauseRequest
	}
	resumeInput struct {
		ID   string `path:"id" doc:"The id."`
		Body *ResumeRequest
	}
	snapshotInput struct {
		ID   string `path:"id" doc:"The sandbox's id."`
		Body *SnapshotRequest
	}
	forkInput struct {
		ID   string `path:"id" doc:"The sandbox's id."`
		Body *ForkRequest
	}
	rollbackInput struct {
		ID   string `path:"id" doc:"The sandbox's id."`
		Body RollbackRequest
	}
	snapshotsInput struct {
		SandboxID string `query:"sandbox_id" doc:"Only the snapshots of this sandbox: its tree, by parent_id."`
		Name      string `query:"name" doc:"Only snapshots with this name."`
		Limit     int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most to return."`
		Cursor    string `query:"cursor" doc:"The next_cursor of the previous page."`
	}
)

type changesInput struct {
	ID    string `path:"id" doc:"The snapshot's id."`
	Since string `query:"since" required:"true" minLength:"1" doc:"The id of the snapshot to compare with."`
	Limit int    `query:"limit" minimum:"1" maximum:"10000" default:"1000" doc:"The most files to return."`
}

func (s *handlers) registerSnapshots() {
	svc := s.services.Snapshots
	if svc == nil {
		return
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "pause-sandbox", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/pause", Tag: "Snapshots",
		Summary: "Pause a sandbox", Scope: bothy.ScopeSandboxesWrite,
		Text: "Freezes memory, processes and files. The sandbox stays, in the state `paused`, and takes no CPU and no memory.",
	}, func(ctx context.Context, in *pauseInput) (*openapi.Answer[Paused], error) {
		var o bothy.PauseOptions
		if b := in.Body; b != nil {
			o = bothy.PauseOptions{FilesOnly: b.Memory != nil && !*b.Memory, Name: b.Name, Wait: b.Wait}
		}
		n, err := svc.Pause(ctx, in.ID, o)
		if err != nil {
			return nil, err
		}
		return openapi.AnswerWith(Paused{SnapshotID: n.ID, Snapshot: n}), nil
	})
	resume := func(ctx context.Context, in *resumeInput) (*openapi.Answer[*bothy.Sandbox], error) {
		var o bothy.ResumeOptions
		if b := in.Body; b != nil {
			o.FilesOnly = b.Memory != nil && !*b.Memory
		}
		return one(svc.Resume(ctx, in.ID, o))
	}
	openapi.Add(s.registry, middleware.Operation{
		ID: "resume-sandbox", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/resume", Tag: "Snapshots",
		Summary: "Resume a sandbox", Scope: bothy.ScopeSandboxesWrite,
		Text: "It continues exactly where it was, with the same id; with `memory: false` it restarts with its files.",
	}, resume)
	openapi.Add(s.registry, middleware.Operation{
		ID: "resume-snapshot", Method: http.MethodPost, Path: "/v1/snapshots/{id}/resume", Tag: "Snapshots",
		Summary: "Resume the sandbox that is paused in a snapshot", Scope: bothy.ScopeSandboxesWrite,
	}, resume)
	openapi.Add(s.registry, middleware.Operation{
		ID: "create-snapshot", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/snapshots", Tag: "Snapshots",
		Summary: "Take a live snapshot", Scope: bothy.ScopeSandboxesWrite, Status: http.StatusCreated,
		Text: "The sandbox keeps running. With `memory: false` the snapshot holds only its files.",
	}, func(ctx context.Context, in *snapshotInput) (*openapi.Answer[*bothy.Snapshot], error) {
		var req bothy.SnapshotCreate
		if b := in.Body; b != nil {
			req = bothy.SnapshotCreate{FilesOnly: b.Memory != nil && !*b.Memory, Name: b.Name, Wait: b.Wait}
		}
		return one(svc.CreateSnapshot(ctx, in.ID, req))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "fork-sandbox", Once: true, Method: http.MethodPost, Path: "/v1/sandboxes/{id}/fork", Tag: "Snapshots",
		Summary: "Fork a sandbox", Scope: bothy.ScopeSandboxesWrite, Status: http.StatusCreated,
		Text: "Makes running copies, including memory; the original keeps running. Fields that are not given are taken from the original.",
	}, func(ctx context.Context, in *forkInput) (*openapi.Answer[openapi.Items[*bothy.Sandbox]], error) {
		if in.Body == nil {
			in.Body = &ForkRequest{}
		}
		return many(svc.Fork(ctx, in.ID, in.Body.request()))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "rollback-sandbox", Method: http.MethodPost, Path: "/v1/sandboxes/{id}/rollback", Tag: "Snapshots",
		Summary: "Roll a sandbox back", Scope: bothy.ScopeSandboxesWrite,
		Text: "Returns the sandbox to its state at a snapshot. Its state until now is kept as another snapshot.",
	}, func(ctx context.Context, in *rollbackInput) (*openapi.Answer[*bothy.Sandbox], error) {
		return one(svc.Rollback(ctx, in.ID, in.Body.SnapshotID))
	})
	s.registerSnapshotObjects(svc)
}

func (s *handlers) registerSnapshotObjects(svc bothy.SnapshotService) {
	openapi.Add(s.registry, middleware.Operation{
		ID: "list-snapshots", Method: http.MethodGet, Path: "/v1/snapshots", Tag: "Snapshots",
		Summary: "List snapshots", Scope: bothy.ScopeSandboxesRead, Text: "Newest first.",
	}, func(ctx context.Context, in *snapshotsInput) (*openapi.Answer[bothy.Page[*bothy.Snapshot]], error) {
		p, err := svc.Snapshots(ctx, bothy.SnapshotFilter{
			SandboxID: in.SandboxID, Name: in.Name, Limit: in.Limit, Cursor: in.Cursor,
		})
		return page(p, err)
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "get-snapshot", Method: http.MethodGet, Path: "/v1/snapshots/{id}", Tag: "Snapshots",
		Summary: "Get a snapshot", Scope: bothy.ScopeSandboxesRead,
	}, func(ctx context.Context, in *openapi.IDInput) (*openapi.Answer[*bothy.Snapshot], error) {
		return one(svc.Snapshot(ctx, in.ID))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "compare-snapshots", Method: http.MethodGet, Path: "/v1/snapshots/{id}/changes", Tag: "Snapshots",
		Summary: "List the files that differ from another snapshot", Scope: bothy.ScopeSandboxesRead,
		Text: "The files that were added, changed or removed from the snapshot `since` to this one, in the order of their paths. " +
			"The two may be of different sandboxes and templates. A file of which only the times differ is not listed.",
	}, func(ctx context.Context, in *changesInput) (*openapi.Answer[*bothy.SnapshotChanges], error) {
		return one(svc.CompareSnapshots(ctx, in.Since, in.ID, in.Limit))
	})
	openapi.Add(s.registry, middleware.Operation{
		ID: "delete-snapshot", Method: http.MethodDelete, Path: "/v1/snapshots/{id}", Tag: "Snapshots",
		Summary: "Delete a snapshot", Scope: bothy.ScopeSandboxesWrite,
		Text: "Refused with `snapshot_in_use` while a paused sandbox needs it.",
	}, func(ctx context.Context, in *openapi.IDInput) (*openapi.Empty, error) {
		return nil, svc.DeleteSnapshot(ctx, in.ID)
	})
}
