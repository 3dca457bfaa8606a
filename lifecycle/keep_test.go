package lifecycle_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/snapshot"
)

// remote is a store that uploads nothing: the test decides which trees have arrived.
type remote struct {
	blob.Store
	arrived func(name string)

	mu     sync.Mutex
	asked  []string
	heard  chan string // the trees passed to Keep
	kept   map[string]chan struct{}
	absent map[string]map[string][]byte // small files of trees that are not on this host
}

var _ blob.Remote = (*remote)(nil)

func newRemote(s blob.Store) *remote {
	return &remote{Store: s, heard: make(chan string, 100), kept: map[string]chan struct{}{}, absent: map[string]map[string][]byte{}}
}

func (r *remote) there(name string) chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.kept[name] == nil {
		r.kept[name] = make(chan struct{})
	}
	return r.kept[name]
}

func (r *remote) Keep(name string) {
	r.mu.Lock()
	r.asked = append(r.asked, name)
	r.mu.Unlock()
	r.heard <- name
	if r.Kept(name) {
		r.arrived(name)
	}
}

// arrive simulates the arrival of a tree in the storage.
func (r *remote) arrive(name string) {
	close(r.there(name))
	r.arrived(name)
}

func (r *remote) Kept(name string) bool {
	select {
	case <-r.there(name):
		return true
	default:
		return false
	}
}

func (r *remote) WaitKept(ctx context.Context, name string) error {
	select {
	case <-r.there(name):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *remote) Local(name string) bool {
	_, release, err := r.Store.Open(context.Background(), name)
	if err == nil {
		release()
	}
	return err == nil
}

func (r *remote) ReadFile(ctx context.Context, name, file string) ([]byte, error) {
	r.mu.Lock()
	files, ok := r.absent[name]
	r.mu.Unlock()
	if ok {
		return files[file], nil
	}
	dir, release, err := r.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer release()
	return os.ReadFile(filepath.Join(dir, file))
}

// remoteWorld is a world whose snapshots are uploaded.
func remoteWorld(t *testing.T) (*world, func() *remote) {
	w := newWorld(t)
	var r *remote
	w.change = func(o *lifecycle.Options) {
		before := r
		r = newRemote(o.Blobs)
		if before != nil {
			r.kept, r.absent = before.kept, before.absent
		}
		r.arrived = func(id string) { w.SnapshotStored(context.Background(), id) }
		o.Blobs = r
	}
	w.restart()
	return w, func() *remote { return r }
}

func (w *world) durable(id string) bothy.Durable {
	w.t.Helper()
	n, err := w.Service.Snapshot(w.me(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return n.Durable
}

func TestSnapshotBecomesDurable(t *testing.T) {
	w, r := remoteWorld(t)
	b := w.create(bothy.SandboxCreate{})
	n, err := w.Pause(w.me(), b.ID, bothy.PauseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n.Durable != bothy.DurableHost || w.durable(n.ID) != bothy.DurableHost {
		t.Errorf("it is %s at once", n.Durable)
	}
	if !slices.Contains(r().asked, n.ID) {
		t.Error("it is not being uploaded")
	}
	r().arrive(n.ID)
	if got := w.durable(n.ID); got != bothy.DurableStore {
		t.Errorf("it is %q", got)
	}
	w.wantStoredEvents(n.ID, 1)
	r().arrived(n.ID) // reported again, as after a restart
	w.wantStoredEvents(n.ID, 1)
}

func (w *world) wantStoredEvents(id string, want int) {
	w.t.Helper()
	events, err := w.store.Events(w.t.Context(), "mine", 0, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, e := range events {
		if e.Type == bothy.EventSnapshotStored && e.Data["snapshot_id"] == id && e.Data["durable"] == "store" {
			n++
		}
	}
	if n != want {
		w.t.Errorf("there are %d events about %s", n, id)
	}
}

func TestWaitForTheStore(t *testing.T) {
	w, r := remoteWorld(t)
	b := w.create(bothy.SandboxCreate{})
	type answer struct {
		n   *bothy.Snapshot
		err error
	}
	answers := make(chan answer)
	go func() {
		n, err := w.CreateSnapshot(w.me(), b.ID, bothy.SnapshotCreate{Name: "x", Wait: bothy.DurableStore})
		answers <- answer{n, err}
	}()
	id := <-r().heard
	// The sandbox is not locked meanwhile.
	if _, err := w.Pause(w.me(), b.ID, bothy.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	r().arrive(id)
	got := <-answers
	if got.err != nil || got.n.ID != id || got.n.Durable != bothy.DurableStore {
		t.Errorf("the answer: %+v, %v", got.n, got.err)
	}
	// A caller that stops waiting gets the current state.
	if _, err := w.Resume(w.me(), b.ID, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.me())
	for len(r().heard) > 0 {
		<-r().heard
	}
	go func() { <-r().heard; cancel() }()
	n, err := w.CreateSnapshot(ctx, b.ID, bothy.SnapshotCreate{Wait: bothy.DurableStore})
	if err != nil || n.Durable != bothy.DurableHost {
		t.Errorf("it says %+v, %v", n, err)
	}
}

func TestWaitIsRefusedWithoutAStore(t *testing.T) {
	w := newWorld(t)
	b := w.create(bothy.SandboxCreate{})
	for wait, code := range map[bothy.Durable]bothy.Code{"store": bothy.CodeUnsupported, "moon": bothy.CodeInvalid} {
		_, err := w.Pause(w.me(), b.ID, bothy.PauseOptions{Wait: wait})
		if bothy.ErrorCode(err) != code {
			t.Errorf("%s: %v", wait, err)
		}
		if _, err = w.CreateSnapshot(w.me(), b.ID, bothy.SnapshotCreate{Wait: wait}); bothy.ErrorCode(err) != code {
			t.Errorf("%s: %v", wait, err)
		}
	}
	if now, err := w.Get(w.me(), b.ID); err != nil || now.State != bothy.StateRunning {
		t.Errorf("after a refusal: %v, %v", now, err)
	}
}

func TestARestartedServerContinuesUploads(t *testing.T) {
	w, r := remoteWorld(t)
	b := w.create(bothy.SandboxCreate{})
	var ids []string
	for i := range 3 {
		n, err := w.CreateSnapshot(w.me(), b.ID, bothy.SnapshotCreate{Name: fmt.Sprint("n", i)})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, n.ID)
	}
	r().arrive(ids[0])
	close(r().there(ids[1])) // it arrived, but nothing was reported
	w.restart()
	if got := w.durable(ids[1]); got != bothy.DurableStore {
		t.Errorf("the snapshot that had arrived is %s", got)
	}
	if slices.Contains(r().asked, ids[0]) || !slices.Contains(r().asked, ids[2]) {
		t.Errorf("the uploads are %v of %v", r().asked, ids)
	}
}

// A snapshot without a record may have been deleted by another host. It is listed again only if no
// other host can have known it: if it is of a sandbox of this host and never reached the storage.
func TestSnapshotsThatAnotherHostDeletedAreNotListed(t *testing.T) {
	w, r := remoteWorld(t)
	change := w.change
	w.change = func(o *lifecycle.Options) {
		change(o)
		asShared(o)
	}
	w.restart()
	snap := func(sandbox string) string {
		n, err := w.CreateSnapshot(w.me(), sandbox, bothy.SnapshotCreate{Name: "n"})
		if err != nil {
			t.Fatal(err)
		}
		return n.ID
	}
	own, ended := w.create(bothy.SandboxCreate{}), w.create(bothy.SandboxCreate{})
	stored, unlisted, others := snap(own.ID), snap(own.ID), snap(ended.ID)
	r().arrive(stored)
	if err := w.Terminate(w.me(), ended.ID); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{stored, unlisted, others} {
		if err := w.store.DeleteSnapshot(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	w.restart()
	for id, want := range map[string]bothy.Code{stored: bothy.CodeSnapshotNotFound, unlisted: "", others: bothy.CodeSnapshotNotFound} {
		if _, err := w.Service.Snapshot(w.me(), id); bothy.ErrorCode(err) != want {
			t.Errorf("the snapshot %s (%s, %s, %s): %v", id, stored, unlisted, others, err)
		}
	}
}

// The records are authoritative: a snapshot without files on this host keeps its record.
func TestNoRecordIsDeletedForMissingFiles(t *testing.T) {
	w, r := remoteWorld(t)
	b := w.create(bothy.SandboxCreate{})
	var ids []string
	for i := range 2 {
		n, err := w.CreateSnapshot(w.me(), b.ID, bothy.SnapshotCreate{Name: fmt.Sprint("n", i)})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, n.ID)
	}
	r().arrive(ids[0])
	for _, id := range ids {
		if err := os.RemoveAll(filepath.Join(w.dir, "snapshots", id)); err != nil {
			t.Fatal(err)
		}
	}
	r().absent[ids[0]] = map[string][]byte{snapshot.ManifestName: fmt.Appendf(nil, `{"kind":"memory","engine_build":%q}`, w.build)}
	w.restart()
	for _, id := range ids {
		if _, err := w.Service.Snapshot(w.me(), id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := w.Create(w.me(), bothy.SandboxCreate{SnapshotID: ids[1]}); bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
		t.Errorf("a sandbox from a lost snapshot: %v", err)
	}
	if err := w.DeleteSnapshot(w.me(), ids[1]); err != nil {
		t.Errorf("deleting a lost snapshot: %v", err)
	}
}

// A pause that was interrupted by a crash is undone without the storage.
func TestInterruptedPauseIsUndone(t *testing.T) {
	w, _ := remoteWorld(t)
	b := w.create(bothy.SandboxCreate{})
	sb, err := w.store.Sandbox(t.Context(), b.ID)
	if err != nil {
		t.Fatal(err)
	}
	sb.State, sb.SnapshotID = bothy.StatePausing, "snp-half"
	if err := w.store.PutSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	w.restart()
	if now, err := w.Get(w.me(), b.ID); err != nil || now.State != bothy.StateRunning {
		t.Errorf("it is %v, %v", now, err)
	}
}
