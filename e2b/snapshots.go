package e2b

import (
	"context"
	"maps"
	"net/http"
	"strings"

	"github.com/bothy-dev/bothy"
)

type snapshotInfo struct {
	SnapshotID string   `json:"snapshotID"`
	Names      []string `json:"names"`
}

func (d *Door) snapshotRoutes() []Route {
	return []Route{
		route("POST /sandboxes/{sandboxID}/snapshots", "create-snapshot", bothy.ScopeSandboxesWrite, d.createSnapshot),
		route("GET /snapshots", "list-snapshots", bothy.ScopeSandboxesRead, d.listSnapshots),
		route("POST /sandboxes/{sandboxID}/fork", "fork-sandbox", bothy.ScopeSandboxesWrite, d.fork),
	}
}

func infoOf(n *bothy.Snapshot) snapshotInfo {
	s := snapshotInfo{SnapshotID: n.ID, Names: []string{}}
	if n.Name != "" {
		s.Names = append(s.Names, n.Name)
	}
	return s
}

func (d *Door) createSnapshot(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Name   string `json:"name"`
		Memory *bool  `json:"memory"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	id := d.id(r)
	sb, err := d.found(r.Context(), id)
	if err != nil {
		return err
	}
	n, err := d.Snapshots.CreateSnapshot(r.Context(), sb.ID, bothy.SnapshotCreate{
		Name: bareName(in.Name), FilesOnly: in.Memory != nil && !*in.Memory,
	})
	if err != nil {
		return err
	}
	d.Server.Note(r, id, n.ID, "")
	return reply(w, http.StatusCreated, infoOf(n))
}

func (d *Door) listSnapshots(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	limit, err := number(q, "limit", 100, 1, 1000)
	if err != nil {
		return err
	}
	p, err := d.Snapshots.Snapshots(r.Context(), bothy.SnapshotFilter{
		SandboxID: bareID(q.Get("sandboxID")), Name: bareName(q.Get("name")), Limit: limit, Cursor: q.Get("nextToken"),
	})
	if err != nil {
		return err
	}
	if p.NextCursor != "" {
		w.Header().Set("X-Next-Token", p.NextCursor)
	}
	list := []snapshotInfo{}
	sleeps := d.sleeps(r.Context())
	for _, n := range p.Items {
		if n.Name != "" || !sleeps(n) {
			list = append(list, infoOf(n))
		}
	}
	return reply(w, http.StatusOK, list)
}

// sleeps returns a function that recognises the snapshots of paused sandboxes, which are not
// listed.
func (d *Door) sleeps(ctx context.Context) func(*bothy.Snapshot) bool {
	known := map[string]*bothy.Sandbox{}
	return func(n *bothy.Snapshot) bool {
		sb, ok := known[n.SandboxID]
		if !ok {
			sb, _ = d.Sandboxes.Get(ctx, n.SandboxID)
			known[n.SandboxID] = sb
		}
		return sb != nil && (n.ID == sb.SnapshotID || n.ID == sb.EarlierSnapshotID)
	}
}

// forked is the result for one copy.
type forked struct {
	Sandbox *sandbox `json:"sandbox,omitempty"`
}

func (d *Door) fork(w http.ResponseWriter, r *http.Request) error {
	var in struct {
		Count   *int `json:"count"`
		Timeout *int `json:"timeout"`
	}
	if err := read(w, r, &in); err != nil {
		return err
	}
	count := 1
	if in.Count != nil {
		count = *in.Count
	}
	if count < 1 || count > 100 {
		return invalid("count is %d; give from 1 to 100", count)
	}
	t, err := seconds(in.Timeout, lifeV2)
	if err != nil {
		return err
	}
	id := d.id(r)
	sb, err := d.found(r.Context(), id)
	if err != nil {
		return err
	}
	m := maps.Clone(sb.Metadata)
	maps.DeleteFunc(m, func(k, _ string) bool { return strings.HasPrefix(k, markKey) }) // it made only one
	copies, err := d.Snapshots.Fork(r.Context(), id, bothy.ForkRequest{Count: count, TimeoutSeconds: t, Metadata: m, Secrets: onlyRules(sb)})
	if err != nil {
		return err
	}
	list := make([]forked, len(copies))
	for i, sb := range copies {
		s := d.shown(r.Context(), sb)
		list[i].Sandbox = &s
	}
	return reply(w, http.StatusCreated, list)
}
