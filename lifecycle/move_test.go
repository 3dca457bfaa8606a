package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/lifecycle"
	"github.com/bothy-dev/bothy/snapshot"
	"github.com/bothy-dev/bothy/store"
)

// trusts lets a server import memory that another one exports.
func (w *world) trusts(other *world) {
	w.t.Helper()
	key, err := other.ArchiveKey(other.me())
	if err != nil {
		w.t.Fatal(err)
	}
	k, err := snapshot.ParsePublicKey(key.Key)
	if err != nil {
		w.t.Fatal(err)
	}
	w.reopen(func(o *lifecycle.Options) { o.TrustedKeys = append(o.TrustedKeys, k) })
}

// reopen restarts the server with other options.
func (w *world) reopen(change func(*lifecycle.Options)) {
	w.t.Helper()
	w.closeServer()
	w.change = change
	w.open()
}

// forgery is an archive that a tenant forged, with correct checksums.
type forgery struct {
	change func(*snapshot.Manifest)
	files  []byte
	size   int64 // of the files, padded with zeros
	key    snapshot.Key
}

func (f forgery) archive(t *testing.T) []byte {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, snapshot.MemoryDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if f.files == nil {
		f.files = []byte("tar")
	}
	for name, b := range map[string][]byte{snapshot.FilesTar: f.files, "memory/state.json": []byte(`{"build":"build-1"}`)} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if f.size > 0 {
		if err := os.Truncate(filepath.Join(dir, snapshot.FilesTar), f.size); err != nil {
			t.Fatal(err)
		}
	}
	m := &snapshot.Manifest{
		ID: "snpforged", SandboxID: "sbxforged", Kind: bothy.SnapshotMemory, CreatedAt: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		Engine: "fake", EngineBuild: "build-1", GuestKey: "door",
		Sandbox: snapshot.Origin{Template: "t", TemplateDigest: digest, CPU: 1, MemoryMB: 256, DiskMB: 64, OnTimeout: bothy.TimeoutTerminate},
	}
	if f.change != nil {
		f.change(m)
	}
	if err := snapshot.Seal(t.Context(), dir, m); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := snapshot.Export(t.Context(), &b, dir, m, "", f.key); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (w *world) importing(ctx context.Context, archive []byte) (*bothy.Snapshot, error) {
	w.t.Helper()
	return w.ImportSnapshot(ctx, "", "", bytes.NewReader(archive))
}

// Memory in archives without a signature, or with one of an unknown server, is never restored.
func TestForgedMemoryIsNotRestored(t *testing.T) {
	w := newWorld(t)
	for name, key := range map[string]snapshot.Key{"unsigned": {}, "signed by a stranger": snapshot.NewKey(bytes.Repeat([]byte{7}, 32))} {
		n, err := w.importing(w.me(), forgery{key: key}.archive(t))
		if err != nil || n.Kind != bothy.SnapshotFiles || !strings.Contains(n.Detail, "left out") {
			t.Fatalf("%s: %+v, %v", name, n, err)
		}
		if entries, err := os.ReadDir(filepath.Join(w.dir, "snapshots", n.ID, "memory")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the files of its memory are %v, %v", name, entries, err)
		}
		sb := w.create(bothy.SandboxCreate{SnapshotID: n.ID})
		if sb.Resumed.Kind != bothy.SnapshotFiles || sb.Resumed.Detail != n.Detail || w.machine(sb.ID).RestoredFrom() != "" {
			t.Errorf("%s: it was restored as %+v", name, sb.Resumed)
		}
	}
}

// The same archive is imported with its memory on the server that made it, and on another once that
// server's operator trusts the key.
func TestMemoryIsImportedFromTrustedServers(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	n, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := w.ExportSnapshot(w.me(), n.ID, "", &b); err != nil {
		t.Fatal(err)
	}
	back, err := w.importing(w.me(), b.Bytes())
	if err != nil || back.Kind != bothy.SnapshotMemory || back.Detail != "" {
		t.Fatalf("here: %+v, %v", back, err)
	}
	key, err := w.ArchiveKey(w.me())
	if err != nil {
		t.Fatal(err)
	}
	there, err := other.importing(other.me(), b.Bytes())
	if err != nil || there.Kind != bothy.SnapshotFiles || !strings.Contains(there.Detail, key.Key) || !strings.Contains(there.Detail, "trusted_keys") {
		t.Fatalf("there: %+v, %v", there, err)
	}
	other.trusts(w)
	there, err = other.importing(other.me(), b.Bytes())
	if err != nil || there.Kind != bothy.SnapshotMemory {
		t.Fatalf("with the key: %+v, %v", there, err)
	}
	if sb := other.create(bothy.SandboxCreate{SnapshotID: there.ID}); sb.Resumed.Kind != bothy.SnapshotMemory {
		t.Errorf("resumed as %+v", sb.Resumed)
	}
	wantCode(t, func() error { _, err := w.ArchiveKey(context.Background()); return err }(), bothy.CodeUnauthenticated)
}

// An imported snapshot belongs to the importer alone: its date, sandbox and history are not those in
// the archive.
func TestAnImportTakesNothingFromOthers(t *testing.T) {
	w := newWorld(t)
	w.retention = lifecycle.Retention{PerSandbox: 2}
	w.closeServer()
	w.open()
	victim := w.create(bothy.SandboxCreate{})
	precious, err := w.CreateSnapshot(w.me(), victim.ID, bothy.SnapshotCreate{Name: "precious"})
	if err != nil {
		t.Fatal(err)
	}
	theirs := as(t, "theirs")
	claim := func(m *snapshot.Manifest) {
		m.SandboxID, m.ParentID, m.ID, m.ProjectID = victim.ID, precious.ID, precious.ID, "mine"
		m.CreatedAt = time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	for range 3 {
		n, err := w.importing(theirs, forgery{change: claim}.archive(t))
		if err != nil {
			t.Fatal(err)
		}
		if n.SandboxID == victim.ID || !strings.HasPrefix(n.SandboxID, "sbx") || n.ParentID != "" || n.ID == precious.ID || !n.CreatedAt.Equal(w.clock.Now()) {
			t.Errorf("imported %+v", n)
		}
	}
	// Earlier versions took these fields from archives.
	for _, id := range []string{"snpa", "snpb", "snpc"} {
		old := &bothy.Snapshot{ID: id, ProjectID: "theirs", SandboxID: victim.ID, CreatedAt: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)}
		if err := w.store.PutSnapshot(t.Context(), old); err != nil {
			t.Fatal(err)
		}
	}
	w.Prune(t.Context())
	if _, err := w.CreateSnapshot(w.me(), victim.ID, bothy.SnapshotCreate{Name: "another"}); err != nil {
		t.Fatal(err)
	}
	w.closeServer() // so that background pruning has ended
	w.open()
	if _, err := w.Snapshot(w.me(), precious.ID); err != nil {
		t.Errorf("another project's imports deleted it: %v", err)
	}
	page, err := w.Snapshots(theirs, bothy.SnapshotFilter{SandboxID: victim.ID})
	if err != nil || len(page.Items) != 2 {
		t.Errorf("the other project has %d snapshots, %v", len(page.Items), err)
	}
	events, err := w.store.Events(t.Context(), "theirs", 0, 100)
	if err != nil || len(events) == 0 {
		t.Fatal(events, err)
	}
	for _, e := range events[:3] {
		if e.SandboxID == victim.ID {
			t.Errorf("an event of the other project names it: %+v", e)
		}
	}
}

func TestManifestsAreValidatedLikeRequests(t *testing.T) {
	w := newWorld(t)
	p := &plans{plan: bothy.Plan{Name: "small", MemoryMB: 256, DiskMB: 64}}
	w.reopen(func(o *lifecycle.Options) { o.Plans = p })
	origin := func(f func(*snapshot.Origin)) func(*snapshot.Manifest) {
		return func(m *snapshot.Manifest) { f(&m.Sandbox) }
	}
	for name, c := range map[string]struct {
		change func(*snapshot.Manifest)
		code   bothy.Code
	}{
		"a template elsewhere":   {origin(func(o *snapshot.Origin) { o.Template = "../../../etc" }), bothy.CodeInvalid},
		"no template":            {origin(func(o *snapshot.Origin) { o.Template = "" }), bothy.CodeInvalid},
		"a template in colour":   {origin(func(o *snapshot.Origin) { o.Template = "\x1b[31mred" }), bothy.CodeInvalid},
		"a name as digest":       {origin(func(o *snapshot.Origin) { o.TemplateDigest = "t" }), bothy.CodeInvalid},
		"half a digest":          {origin(func(o *snapshot.Origin) { o.TemplateDigest = "sha256:11" }), bothy.CodeInvalid},
		"no sandbox":             {func(m *snapshot.Manifest) { m.Sandbox = snapshot.Origin{} }, bothy.CodeInvalid},
		"an unknown engine":      {func(m *snapshot.Manifest) { m.Engine = "process" }, bothy.CodeInvalid},
		"a build of 1 KB":        {func(m *snapshot.Manifest) { m.EngineBuild = strings.Repeat("x", 1024) }, bothy.CodeInvalid},
		"a kernel of two lines":  {func(m *snapshot.Manifest) { m.Kernel = "Linux\nand more" }, bothy.CodeInvalid},
		"a long name":            {func(m *snapshot.Manifest) { m.Name = strings.Repeat("x", 129) }, bothy.CodeInvalid},
		"a name in colour":       {func(m *snapshot.Manifest) { m.Name = "\x1b[31mred" }, bothy.CodeInvalid},
		"variables with lines":   {origin(func(o *snapshot.Origin) { o.Env = map[string]string{"A\nB": "c"} }), bothy.CodeInvalid},
		"variables with =":       {origin(func(o *snapshot.Origin) { o.Env = map[string]string{"A=B": "c"} }), bothy.CodeInvalid},
		"a zero in a variable":   {origin(func(o *snapshot.Origin) { o.Env = map[string]string{"A": "b\x00c"} }), bothy.CodeInvalid},
		"variables of 100 KB":    {origin(func(o *snapshot.Origin) { o.Env = map[string]string{"A": strings.Repeat("x", 100<<10)} }), bothy.CodeInvalid},
		"labels without a name":  {origin(func(o *snapshot.Origin) { o.Metadata = map[string]string{"": "c"} }), bothy.CodeInvalid},
		"too many processors":    {origin(func(o *snapshot.Origin) { o.CPU = 500 }), bothy.CodeInvalid},
		"memory below zero":      {origin(func(o *snapshot.Origin) { o.MemoryMB = -1 }), bothy.CodeInvalid},
		"a disk without end":     {origin(func(o *snapshot.Origin) { o.DiskMB = math.MaxInt64 }), bothy.CodeInvalid},
		"a time-out below zero":  {origin(func(o *snapshot.Origin) { o.TimeoutSeconds = -1 }), bothy.CodeInvalid},
		"another end":            {origin(func(o *snapshot.Origin) { o.OnTimeout = "explode" }), bothy.CodeInvalid},
		"a bad policy":           {origin(func(o *snapshot.Origin) { o.Network.AllowDomains = []string{"bad"} }), bothy.CodeInvalid},
		"memory beyond the plan": {origin(func(o *snapshot.Origin) { o.MemoryMB = 512 }), bothy.CodeQuota},
		"a disk beyond the plan": {origin(func(o *snapshot.Origin) { o.DiskMB = 128 }), bothy.CodeQuota},
	} {
		_, err := w.importing(w.me(), forgery{change: c.change}.archive(t))
		wantCode(t, err, c.code)
		if err != nil && bothy.AsError(err).Hint == "" {
			t.Errorf("%s: there is no hint in %v", name, err)
		}
	}
	w.noBlobs()
	if _, err := w.importing(w.me(), forgery{}.archive(t)); err != nil {
		t.Errorf("a valid manifest: %v", err)
	}
}

// The size of an archive is checked by its manifest before anything is written, and by its content
// during the import.
func TestArchiveBombsAreRefused(t *testing.T) {
	bomb := forgery{files: bytes.Repeat([]byte{7}, 40<<20)}.archive(t)
	if len(bomb) > 100<<10 {
		t.Fatalf("the archive has %d bytes", len(bomb))
	}
	w := newWorld(t)
	free := int64(1 << 40)
	for name, c := range map[string]struct {
		quota, free int64
		archive     []byte
		code        bothy.Code
	}{
		"more than the quota": {30 << 20, 1 << 40, bomb, bothy.CodeQuota},
		"more than the disk":  {0, 1<<30 + 30<<20, bomb, bothy.CodeDiskFull},
		"more than the sandbox that it says it is of": {0, 1 << 40, forgery{
			size:   2 << 30,
			change: func(m *snapshot.Manifest) { m.Sandbox.MemoryMB = 64 },
		}.archive(t), bothy.CodeInvalid},
	} {
		free = c.free
		least := free
		w.reopen(func(o *lifecycle.Options) {
			o.Retention = lifecycle.Retention{ProjectBytes: c.quota, MinFreeDisk: 1 << 30}
			o.FreeDisk = func(dir string) (int64, error) {
				least = min(least, c.free-inDir(t, dir))
				return c.free - inDir(t, dir), nil
			}
		})
		_, err := w.importing(w.me(), c.archive)
		wantCode(t, err, c.code)
		if least < c.free {
			t.Errorf("%s: %d bytes were written", name, c.free-least)
		}
		w.noBlobs()
	}
	// Two archives that would each fit do not fit together.
	w.reopen(func(o *lifecycle.Options) { o.Retention.ProjectBytes = 60 << 20 })
	first := stall(bomb)
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := w.ImportSnapshot(w.me(), "", "", first); err != nil {
			t.Error(err)
		}
	})
	<-first.reached
	_, err := w.importing(w.me(), bomb)
	wantCode(t, err, bothy.CodeQuota)
	close(first.goOn)
	all.Wait()
	page, err := w.Snapshots(w.me(), bothy.SnapshotFilter{})
	if err != nil || len(page.Items) != 1 {
		t.Errorf("there are %d snapshots, %v", len(page.Items), err)
	}
}

func inDir(t *testing.T, dir string) (sum int64) {
	err := filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			sum += info.Size()
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return sum
}

// stalled is an archive that pauses before its end until it may continue.
type stalled struct {
	io.Reader
	reached, goOn chan struct{}
}

func stall(archive []byte) *stalled {
	s := &stalled{reached: make(chan struct{}), goOn: make(chan struct{})}
	gate := readerFunc(func([]byte) (int, error) {
		close(s.reached)
		<-s.goOn
		return 0, io.EOF
	})
	s.Reader = io.MultiReader(bytes.NewReader(archive[:len(archive)-1]), gate, bytes.NewReader(archive[len(archive)-1:]))
	return s
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// A project may have two concurrent transfers, and the server eight. Another one waits for a short
// time, and no longer than its caller.
func TestConcurrentTransfersAreLimited(t *testing.T) {
	w := newWorld(t)
	archive := forgery{}.archive(t)
	var all sync.WaitGroup
	var open []*stalled
	begin := func(project string) {
		s := stall(archive)
		open = append(open, s)
		all.Go(func() {
			if _, err := w.ImportSnapshot(as(t, project), "", "", s); err != nil {
				t.Error(err)
			}
		})
		<-s.reached
	}
	refused := func(project string, code bothy.Code) {
		t.Helper()
		done := make(chan error)
		go func() {
			_, err := w.importing(as(t, project), archive)
			done <- err
		}()
		eventually(t, "it waits", func() bool { return w.timersDue(10*time.Second) > 0 })
		w.clock.pass(10 * time.Second)
		err := <-done
		if wantCode(t, err, code); bothy.AsError(err).RetryAfter == 0 {
			t.Errorf("there is no retry_after: %v", err)
		}
	}
	begin("a")
	begin("a")
	refused("a", bothy.CodeRateLimited)
	ctx, cancel := context.WithCancel(as(t, "a"))
	cancel()
	if _, err := w.importing(ctx, archive); !errors.Is(err, context.Canceled) {
		t.Errorf("a transfer whose caller left: %v", err)
	}
	for _, project := range []string{"b", "b", "c", "c", "d", "d"} {
		begin(project)
	}
	refused("e", bothy.CodeCapacity)
	waits := make(chan error)
	go func() {
		_, err := w.importing(as(t, "e"), archive)
		waits <- err
	}()
	eventually(t, "it waits", func() bool { return w.timersDue(10*time.Second) > 0 })
	close(open[0].goOn)
	if err := <-waits; err != nil {
		t.Errorf("a transfer after another ended: %v", err)
	}
	for _, s := range open[1:] {
		close(s.goOn)
	}
	all.Wait()
}

// timersDue counts the timers that are due within d.
func (w *world) timersDue(d time.Duration) (n int) {
	w.clock.mu.Lock()
	defer w.clock.mu.Unlock()
	for _, t := range w.clock.timers {
		if !t.stopped && t.at.Sub(w.clock.now) <= d {
			n++
		}
	}
	return n
}

// A transfer that makes no progress is ended.
func TestAStalledTransferEnds(t *testing.T) {
	w := newWorld(t)
	s := stall(forgery{}.archive(t))
	done := make(chan error)
	go func() {
		_, err := w.ImportSnapshot(w.me(), "", "", s)
		done <- err
	}()
	<-s.reached
	w.clock.pass(24 * time.Hour)
	close(s.goOn)
	wantCode(t, <-done, bothy.CodeTimeout)
	w.noBlobs()
}

// Concurrent snapshots do not exceed the quota together.
func TestConcurrentSnapshotsShareTheQuota(t *testing.T) {
	w := newWorld(t)
	sandboxes := make([]*bothy.Sandbox, 8)
	for i := range sandboxes {
		sandboxes[i] = w.create(bothy.SandboxCreate{})
	}
	n, err := w.CreateSnapshot(w.me(), sandboxes[0].ID, bothy.SnapshotCreate{})
	if err != nil {
		t.Fatal(err)
	}
	w.retention = lifecycle.Retention{ProjectBytes: 3 * n.SizeBytes}
	w.restart()
	var all sync.WaitGroup
	for _, sb := range sandboxes {
		all.Go(func() {
			if _, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{}); err != nil {
				wantCode(t, err, bothy.CodeQuota)
			}
		})
	}
	all.Wait()
	count, bytes, err := w.store.SnapshotSum(t.Context(), "mine")
	if err != nil || count != 3 || bytes > w.retention.ProjectBytes {
		t.Errorf("%d snapshots take up %d of %d bytes, %v", count, bytes, w.retention.ProjectBytes, err)
	}
}

// meanwhileStore calls a function after each snapshot is recorded, before AddSnapshot returns.
type meanwhileStore struct {
	store.Store
	do func()
}

func (s meanwhileStore) AddSnapshot(ctx context.Context, n *bothy.Snapshot, q store.SnapshotQuota) error {
	err := s.Store.AddSnapshot(ctx, n, q)
	s.do()
	return err
}

// A snapshot that is being recorded is not counted twice, which would refuse another one for which
// there is room.
func TestUnfinishedSnapshotsCountOnce(t *testing.T) {
	w := newWorld(t)
	var once sync.Once
	var all sync.WaitGroup
	first, second := w.create(bothy.SandboxCreate{}), w.create(bothy.SandboxCreate{})
	n, err := w.CreateSnapshot(w.me(), first.ID, bothy.SnapshotCreate{})
	if err != nil {
		t.Fatal(err)
	}
	w.retention = lifecycle.Retention{ProjectBytes: 3 * n.SizeBytes}
	w.change = func(o *lifecycle.Options) {
		o.Store = meanwhileStore{o.Store, func() {
			once.Do(func() {
				all.Go(func() {
					if _, err := w.CreateSnapshot(w.me(), second.ID, bothy.SnapshotCreate{}); err != nil {
						t.Errorf("there was room for the third: %v", err)
					}
				})
				for range 10_000 { // the other snapshot is either waiting or was compared too early
					runtime.Gosched()
				}
			})
		}}
	}
	w.restart()
	if _, err := w.CreateSnapshot(w.me(), first.ID, bothy.SnapshotCreate{}); err != nil {
		t.Error(err)
	}
	all.Wait()
}

// beforeStore calls a function before each snapshot is recorded.
type beforeStore struct {
	store.Store
	do func(store.Store)
}

func (s beforeStore) AddSnapshot(ctx context.Context, n *bothy.Snapshot, q store.SnapshotQuota) error {
	s.do(s.Store)
	return s.Store.AddSnapshot(ctx, n, q)
}

// Snapshots that another host stored since this one checked the quota count as well.
func TestQuotaAppliesToAllHosts(t *testing.T) {
	w := newWorld(t)
	sb := w.create(bothy.SandboxCreate{})
	n, err := w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{})
	if err != nil {
		t.Fatal(err)
	}
	w.retention = lifecycle.Retention{ProjectBytes: 5 * n.SizeBytes / 2}
	w.change = func(o *lifecycle.Options) {
		o.Store = beforeStore{o.Store, func(s store.Store) {
			if err := s.PutSnapshot(t.Context(), &bothy.Snapshot{ID: "snpelsewhere", ProjectID: "mine", SizeBytes: n.SizeBytes, CreatedAt: n.CreatedAt}); err != nil {
				t.Error(err)
			}
		}}
	}
	w.restart()
	_, err = w.CreateSnapshot(w.me(), sb.ID, bothy.SnapshotCreate{})
	if wantCode(t, err, bothy.CodeQuota); err != nil && bothy.AsError(err).Hint == "" {
		t.Errorf("no hint: %v", err)
	}
	if _, err := w.Pause(w.me(), sb.ID, bothy.PauseOptions{}); bothy.ErrorCode(err) != bothy.CodeQuota {
		t.Errorf("a pause: %v", err)
	}
	if got := w.get(sb.ID); got.State != bothy.StateRunning {
		t.Errorf("over the quota it is %s", got.State)
	}
	if err := w.DeleteSnapshot(w.me(), n.ID); err != nil {
		t.Fatal(err)
	}
	w.noBlobs() // of the refused snapshots
}
