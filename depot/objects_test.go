package depot

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

// oneTree is what a store has of one tree.
type oneTree struct {
	store.Shared
	t store.Tree
}

func (o *oneTree) SetTreeNeeded(_ context.Context, _, _ string, needed bool) error {
	now := time.Now()
	switch {
	case needed:
		o.t.UnneededAt = nil
	case o.t.UnneededAt == nil:
		o.t.UnneededAt = &now
	}
	return nil
}

func (o *oneTree) MarkTreeDeleting(_ context.Context, _, _ string, before time.Time) (bool, error) {
	if !o.t.Deleting() && (o.t.StoredAt == nil || o.t.UnneededAt == nil || o.t.UnneededAt.After(before)) {
		return false, nil
	}
	at := store.TreeDeleting
	o.t.StoredAt = &at
	return true, nil
}

func (o *oneTree) SetTreeStored(_ context.Context, _, _ string, at *time.Time) error {
	o.t.StoredAt = at
	return nil
}

// What nothing needs leaves the object storage after the grace time and not before, and a
// removal that fails is taken up again.
func TestTreesThatNothingNeedsGo(t *testing.T) {
	at := time.Now()
	o := &oneTree{t: store.Tree{Kind: store.TreeTemplates, Name: "a", StoredAt: &at}}
	var need bool
	var removed int
	var away error
	collect := func(grace time.Duration) bool {
		t.Helper()
		now := o.t
		gone, err := collectTree(t.Context(), o, &now, func(context.Context, *store.Tree) (bool, error) { return need, nil }, grace,
			func(context.Context, string, string) error { removed++; return away })
		if !errors.Is(err, away) {
			t.Fatal(err)
		}
		return gone
	}
	need = true
	if collect(0) || o.t.UnneededAt != nil {
		t.Error("what is needed was to go")
	}
	need = false
	if collect(time.Hour) || o.t.UnneededAt == nil || o.t.StoredAt == nil {
		t.Errorf("within the grace time: %+v", o.t)
	}
	need = true
	if collect(time.Hour) || o.t.UnneededAt != nil {
		t.Error("it is needed again, and that is not noted")
	}
	need, away = false, errors.New("away")
	if collect(0) || !o.t.Deleting() {
		t.Errorf("a removal that failed: %+v", o.t)
	}
	away = nil
	if !collect(time.Hour) || o.t.StoredAt != nil || removed != 2 {
		t.Errorf("afterwards: %+v, %d tries", o.t, removed)
	}
	if collect(0) || removed != 2 {
		t.Error("what is not there was removed again")
	}
}

// Golden snapshots that hosts of earlier versions have shared go like all that nothing needs.
func TestSharedGoldenSnapshotsGo(t *testing.T) {
	h := newStoringHosts(t)
	s, ctx, dir := h.one, t.Context(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "pages"), incompressible(1), 0o600))
	for object, record := range map[string]string{"key-0123456789abcdef": `{"manifest_sha256": "0123456789abcdef0123"}`, "other": "damaged"} {
		name, _, _ := strings.Cut(object, "-")
		must(t, s.Bucket.PutTree(ctx, oldGoldens, object, dir))
		at := time.Now()
		must(t, h.shared.PutTree(ctx, store.Tree{Kind: oldGoldens, Name: name, Host: "old", StoredAt: &at, Record: []byte(record)}))
	}
	if len(h.stored(oldGoldens)) != 4 {
		t.Fatalf("stored are %v", h.stored(oldGoldens))
	}
	must(t, s.collect(ctx, time.Hour))
	if left := h.stored(oldGoldens); len(left) != 4 {
		t.Errorf("within the grace time only %v are left", left)
	}
	must(t, s.collect(ctx, 0))
	if left := h.stored(oldGoldens); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	for _, name := range []string{"key", "other"} {
		if r, err := h.shared.Tree(ctx, oldGoldens, name); err != nil || r.StoredAt != nil {
			t.Errorf("the record of %s: %+v, %v", name, r, err)
		}
	}
	must(t, s.upload(ctx), s.collect(ctx, 0))
	if left := h.stored(oldGoldens); len(left) > 0 {
		t.Errorf("afterwards %v are stored", left)
	}
}

// recordsOf are the records of sandboxes and snapshots.
type recordsOf struct {
	store.Store
	open      []*store.Sandbox
	ended     map[string]*store.Sandbox
	snapshots []*bothy.Snapshot
	deleted   map[string]bool
	listed    int
}

func (r *recordsOf) SandboxesInState(context.Context, ...bothy.State) ([]*store.Sandbox, error) {
	r.listed++
	return r.open, nil
}

func (r *recordsOf) AllSnapshots(context.Context) ([]*bothy.Snapshot, error) { return r.snapshots, nil }

func (r *recordsOf) Snapshot(_ context.Context, id string) (*bothy.Snapshot, error) {
	if r.deleted[id] {
		return nil, bothy.Errorf(bothy.CodeSnapshotNotFound, "it was deleted")
	}
	return &bothy.Snapshot{ID: id}, nil
}

func (r *recordsOf) Sandbox(_ context.Context, id string) (*store.Sandbox, error) {
	if sb := r.ended[id]; sb != nil {
		return sb, nil
	}
	return nil, bothy.Errorf(bothy.CodeSandboxNotFound, "there is none")
}

// namesOf are the names that hosts have in common.
type namesOf struct {
	store.Shared
	names []store.TemplateName
}

func (n *namesOf) TemplateNames(context.Context, int64) ([]store.TemplateName, int64, error) {
	return n.names, 1, nil
}

// manifests is a host's folder of snapshots.
type manifests struct {
	blob.Store
	dir string
	err error
}

func (m *manifests) Open(_ context.Context, name string) (string, func(), error) {
	dir := filepath.Join(m.dir, name)
	_, err := os.Stat(dir)
	return dir, func() {}, errors.Join(err, m.err)
}

func (m *manifests) List(context.Context) ([]string, error) { return nil, nil }

// An image that only a snapshot of another host needs stays in the object storage, and the records
// are read once for all images.
func TestObjectsOfSnapshotsOfOtherHostsStay(t *testing.T) {
	here := &manifests{dir: t.TempDir()}
	var m snapshot.Manifest
	m.Version, m.Sandbox.TemplateDigest = snapshot.Version, "sha256:here"
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(here.dir, "snphere"), 0o700), os.WriteFile(filepath.Join(here.dir, "snphere", snapshot.ManifestName), text, 0o600)); err != nil {
		t.Fatal(err)
	}
	sandbox := func(id, digest string) *store.Sandbox {
		sb := &store.Sandbox{TemplateDigest: digest}
		sb.ID = id
		return sb
	}
	records := &recordsOf{
		open:  []*store.Sandbox{sandbox("sbx1", "sha256:open")},
		ended: map[string]*store.Sandbox{"sbx2": sandbox("sbx2", "sha256:far"), "sbx4": sandbox("sbx4", "sha256:deleted")},
		snapshots: []*bothy.Snapshot{{ID: "snphere", SandboxID: "sbx1"}, {ID: "snpfar", SandboxID: "sbx2"},
			{ID: "snpdeleted", SandboxID: "sbx4"}},
		deleted: map[string]bool{"snpdeleted": true},
	}
	s := &Depot{Store: records, Blobs: here, Records: &namesOf{names: []store.TemplateName{{Digest: "sha256:named"}}}, NeededBuilds: noBuilds}
	at := time.Now()
	check := func(want map[string]bool) {
		t.Helper()
		needed, err := s.neededTrees(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range want {
			if need, err := needed(t.Context(), &store.Tree{Kind: store.TreeTemplates, Name: name, StoredAt: &at}); err != nil || need != want {
				t.Errorf("%s is needed: %v %v", name, need, err)
			}
		}
	}
	check(map[string]bool{"named": true, "open": true, "here": true, "far": true, "deleted": false, "other": false})
	if records.listed != 1 {
		t.Errorf("the records were read %d times", records.listed)
	}
	// Nobody knows what this one needs.
	records.snapshots = append(records.snapshots, &bothy.Snapshot{ID: "snpunknown", SandboxID: "sbx3"})
	check(map[string]bool{"far": true, "other": true})
	needed, err := s.neededTrees(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.origins.keep(nil)
	here.err = errors.New("away")
	if need, err := needed(t.Context(), &store.Tree{Kind: store.TreeTemplates, Name: "other", StoredAt: &at}); err == nil || !need {
		t.Errorf("what cannot be read needs nothing: %v %v", need, err)
	}
	if need, err := needed(t.Context(), &store.Tree{Kind: store.TreeTemplates, Name: "other", UnneededAt: &at}); err != nil || need {
		t.Errorf("what has gone is needed: %v %v", need, err)
	}
}

// What a killed server was about to store goes at the next start.
func TestObjectsThatWereLeftGo(t *testing.T) {
	home := t.TempDir()
	left, other := filepath.Join(home, "objects", ".fetch-1"), filepath.Join(home, "objects", "snapshots")
	for _, dir := range []string{left, other} {
		if err := os.MkdirAll(filepath.Join(dir, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	(&Depot{Home: home}).Run(t.Context())
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Error("it is still there:", err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
}
