package server

import (
	"context"
	"slices"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/cluster"
	"github.com/bothy-dev/bothy/store"
)

// newMover creates the mover of sandboxes between hosts.
func (m *member) newMover(gate *cluster.Gate) *cluster.Mover {
	return cluster.NewMover(cluster.MoverOptions{
		Hosts: m.hosts, Gate: gate, Depart: m.lifecycle.Depart, Arrive: m.lifecycle.Arrive, Observe: m.metrics.Move, Log: m.log,
		Own: func(ctx context.Context) ([]*store.Sandbox, error) {
			own, err := m.store.OwnSandboxesInState(ctx, bothy.StateRunning, bothy.StatePaused)
			return slices.DeleteFunc(own, func(sb *store.Sandbox) bool { return sb.Pooled }), err
		},
		ProjectOf: func(ctx context.Context, id string) (string, error) {
			sb, err := m.store.Sandbox(ctx, id)
			if err != nil {
				return "", err
			}
			return sb.ProjectID, nil
		},
		Event: func(ctx context.Context, e bothy.Event) {
			m.lifecycle.Emit(ctx, e.Type, e.SandboxID, e.ProjectID, e.Data)
		},
	}, m.router)
}

// dropMoved deletes the files of snapshots that now belong to another host. A server killed
// during a move may leave some; the database says who owns each.
func (m *member) dropMoved(ctx context.Context) {
	if m.bucket != nil {
		return
	}
	ids, err := m.blobs.List(ctx)
	if err != nil {
		m.log.Warn("cannot list the snapshots on this host, so those that moved away are not deleted", "error", err)
		return
	}
	for _, id := range ids {
		_, o, err := m.hosts.SnapshotHost(ctx, id)
		if err != nil || o.Host == "" || o.Host == m.hosts.Self() {
			continue
		}
		if held, err := m.templates.HoldsSnapshot(id); err != nil || held != nil {
			continue
		}
		if err := m.blobs.Remove(ctx, id); err != nil {
			m.log.Warn("cannot delete the files of a snapshot that moved to another host", "snapshot", id, "error", err)
		}
	}
}
