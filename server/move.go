package server

import (
	"context"
	"slices"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/cluster"
	"github.com/bothy-dev/bothy/store"
)

// newMover creates the mover of sandboxes between hosts.
func (s *Server) newMover(gate *cluster.Gate, router *cluster.Router) *cluster.Mover {
	return cluster.NewMover(cluster.MoverOptions{
		Hosts: s.hosts, Gate: gate, Depart: s.lifecycle.Depart, Arrive: s.lifecycle.Arrive, Observe: s.metrics.Move, Log: s.log,
		Own: func(ctx context.Context) ([]*store.Sandbox, error) {
			own, err := s.store.OwnSandboxesInState(ctx, bothy.StateRunning, bothy.StatePaused)
			return slices.DeleteFunc(own, func(sb *store.Sandbox) bool { return sb.Pooled }), err
		},
		ProjectOf: func(ctx context.Context, id string) (string, error) {
			sb, err := s.store.Sandbox(ctx, id)
			if err != nil {
				return "", err
			}
			return sb.ProjectID, nil
		},
		Event: func(ctx context.Context, e bothy.Event) {
			s.lifecycle.Emit(ctx, e.Type, e.SandboxID, e.ProjectID, e.Data)
		},
	}, router)
}

// dropMoved deletes the files of snapshots that now belong to another host. A server killed
// during a move may leave some; the database says who owns each.
func (s *Server) dropMoved(ctx context.Context) {
	if s.bucket != nil {
		return
	}
	ids, err := s.blobs.List(ctx)
	if err != nil {
		s.log.Warn("cannot list the snapshots on this host, so those that moved away are not deleted", "error", err)
		return
	}
	for _, id := range ids {
		_, o, err := s.hosts.SnapshotHost(ctx, id)
		if err != nil || o.Host == "" || o.Host == s.hosts.Self() {
			continue
		}
		if held, err := s.templates.HoldsSnapshot(id); err != nil || held != nil {
			continue
		}
		if err := s.blobs.Remove(ctx, id); err != nil {
			s.log.Warn("cannot delete the files of a snapshot that moved to another host", "snapshot", id, "error", err)
		}
	}
}
