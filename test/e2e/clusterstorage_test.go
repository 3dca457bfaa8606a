package e2e

import (
	"bytes"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob/s3/s3test"
)

// fillWithNoise writes a file that takes several chunks and returns its checksum.
func (b *box) fillWithNoise() (sum string) {
	return b.sh("", "head -c 30000000 /dev/urandom >/workspace/noise; sha256sum </workspace/noise")
}

func (b *box) noise() (sum string) { return b.sh("", "sha256sum </workspace/noise") }

// pauseStored pauses a sandbox and returns its snapshot's id once that is in the object storage.
func (b *box) pauseStored() string {
	b.Helper()
	sb, err := b.s.Snapshots.Pause(b.ctx, b.id, bothy.PauseOptions{Wait: bothy.DurableStore})
	if err != nil || sb.Durable != bothy.DurableStore {
		b.Fatalf("a pause that waits for the object storage: %+v, %v", sb, err)
	}
	return sb.ID
}

func (b *box) wantPaused(what string) {
	b.Helper()
	if sb := b.get(); sb.State != bothy.StatePaused {
		b.Errorf("%s: it is %s", what, sb.State)
	}
}

// resumesWith resumes a sandbox and checks its file.
func (b *box) resumesWith(what, sum string) {
	b.Helper()
	if _, err := b.s.Snapshots.Resume(b.ctx, b.id, bothy.ResumeOptions{}); err != nil {
		b.Fatalf("%s: %v", what, err)
	}
	if got := b.noise(); got != sum {
		b.Errorf("%s: it was resumed with other files: the checksum is %s, want %s", what, got, sum)
	}
}

// restartWithout restarts a server whose disk has lost its snapshots.
func (s *server) restartWithout(t *testing.T) {
	t.Helper()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s.loseDisk(t)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
}

// pieceOf returns the key of one object of a snapshot in the storage.
func pieceOf(t *testing.T, objects *s3test.Server, snapshot string) string {
	t.Helper()
	for _, key := range objects.Objects(t, "bothy") {
		if strings.HasPrefix(key, "snapshots/"+snapshot+"/") && !strings.HasSuffix(key, "index.json") {
			return key
		}
	}
	t.Fatalf("snapshot %s has no objects in the storage", snapshot)
	return ""
}

// The object storage is slow, loses accepted objects, returns other bytes, and damages objects. No
// sandbox is lost, and everything works once the faults end.
func TestHostsSurviveFaultyObjectStorage(t *testing.T) {
	t.Parallel()
	hosts, objects := newStoringHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	b := one.ownBox(t)
	sum := b.fillWithNoise()
	isPiece := func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/snapshots/snp") }

	var puts atomic.Int32
	mend := objects.InjectFaults(s3test.Faults{
		Before: func(*http.Request) { time.Sleep(30 * time.Millisecond) }, // as if the storage were on another continent
		Lose:   func(r *http.Request) bool { return isPiece(r) && puts.Add(1)%3 == 1 && puts.Load() < 6 },
	})
	b.pauseStored()
	mend()
	if puts.Load() < 2 {
		t.Fatalf("the storage lost nothing of %d objects", puts.Load())
	}
	one.restartWithout(t)

	mend = objects.InjectFaults(s3test.Faults{Answer: func(r *http.Request, body []byte) []byte {
		if r.Method != http.MethodGet || !isPiece(r) || strings.HasSuffix(r.URL.Path, "index.json") || len(body) == 0 {
			return body
		}
		body = bytes.Clone(body)
		body[len(body)/2] ^= 1
		return body
	}})
	if _, err := one.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{}); bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
		t.Errorf("a resume from storage that returns other bytes: %v", err)
	}
	b.wantPaused("by storage that gives back other bytes")
	mend()
	b.resumesWith("once the storage gives back what it has", sum)

	// The sandbox moves, and its new host fetches the snapshot, of which the storage has damaged a chunk.
	snapshot := b.pauseStored()
	b.moveTo("two")
	key := pieceOf(t, objects, snapshot)
	was := objects.Get(t, "bothy", key)
	objects.Put(t, "bothy", key, "not what was here")
	if _, err := two.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{}); bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
		t.Errorf("a resume from a damaged object: %v", err)
	}
	b.wantPaused("by a damaged object")
	if _, _, text := two.ask(t, "GET", "/metrics", "", bearer(two.Key)); !strings.Contains(text, "\nbothy_object_storage_available 1\n") {
		t.Errorf("the metrics lack the available storage:\n%s", text)
	}
	objects.Put(t, "bothy", key, was) // as from a backup
	b.resumesWith("once the object is restored", sum)
}

// A host is killed while it uploads a snapshot to the object storage. The sandbox waits for that host,
// and any host can resume it afterwards.
func TestAHostDiesInTheMiddleOfAnUpload(t *testing.T) {
	t.Parallel()
	hosts, _ := newStoringHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	for _, kind := range []string{"templates", "engines"} { // the failpoint would also fire for these uploads
		one.logged(t, "uploaded to the object storage.*kind="+kind, 1)
	}
	b := one.ownBox(t)
	sum := b.fillWithNoise()
	for _, at := range []string{"s3.chunk", "s3.committed"} {
		if sandboxesOn(t, one)["one"] != 1 {
			b.moveTo("one")
		}
		if err := one.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := one.Start(at + "=kill"); err != nil {
			t.Fatal(err)
		}
		// The answer may be lost with the server, but not the pause.
		_, _ = one.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{})
		if err := one.Dies(); err != nil {
			t.Fatal(err)
		}
		if _, err := two.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{}); bothy.ErrorCode(err) != bothy.CodeStore {
			t.Errorf("%s: a resume before the upload: %v", at, err)
		}
		if err := one.Start(); err != nil {
			t.Fatal(err)
		}
		b.wantPaused(at)
		page, err := one.Snapshots.Snapshots(t.Context(), bothy.SnapshotFilter{SandboxID: b.id})
		if err != nil || len(page.Items) == 0 {
			t.Fatalf("%s: snapshots are %+v, %v", at, page.Items, err)
		}
		two.stored(t, page.Items[0].ID) // the newest
		one.restartWithout(t)
		b.at(two).resumesWith(at, sum)
	}
}

// onSmallDisk moves the state of a stopped server to a small disk.
func (s *server) onSmallDisk(t *testing.T) {
	t.Helper()
	keep := t.TempDir()
	copyAll := func(from, to string) {
		if out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
			t.Fatalf("copy %s: %v %s", from, err, out)
		}
	}
	copyAll(s.Home, keep)
	s.smallDisk(t)
	copyAll(keep, s.Home)
}

// The disk of a host fills up while it fetches a snapshot, and while it uploads one. Both finish once
// there is room.
func TestAHostsDiskFillsDuringTransfers(t *testing.T) {
	t.Parallel()
	hosts, objects := newStoringHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	two.Settings += "snapshots:\n  min_free_disk_mb: 0\n"
	if err := two.Stop(); err != nil {
		t.Fatal(err)
	}
	two.onSmallDisk(t)
	if err := two.Start(); err != nil {
		t.Fatal(err)
	}
	b := one.ownBox(t)
	sum := b.fillWithNoise()
	b.pauseStored()
	if err := one.Kill(); err != nil {
		t.Fatal(err)
	}
	two.awaitHostLost(t, b.id)
	at := b.at(two)

	// midway calls a function while the storage delays the second chunk that is read or written.
	midway := func(method string, do func()) (mend func()) {
		var pieces atomic.Int32
		reached, carryOn := make(chan struct{}), make(chan struct{})
		mend = objects.InjectFaults(s3test.Faults{Before: func(r *http.Request) {
			if r.Method == method && strings.Contains(r.URL.Path, "/snapshots/snp") && !strings.HasSuffix(r.URL.Path, "index.json") && pieces.Add(1) == 2 {
				close(reached)
				<-carryOn
			}
		}})
		go func() {
			<-reached
			do()
			close(carryOn)
		}()
		return mend
	}
	var free func()
	var filled sync.WaitGroup
	fill := func() {
		defer filled.Done()
		free = two.fill(t)
	}
	filled.Add(1)
	mend := midway(http.MethodGet, fill)
	_, err := two.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{})
	filled.Wait()
	mend()
	if bothy.ErrorCode(err) != bothy.CodeDiskFull {
		t.Errorf("a fetch during which the disk fills up: %v", err)
	}
	at.wantPaused("after a fetch onto a full disk")
	free()
	at.resumesWith("once there is room", sum)

	filled.Add(1)
	mend = midway(http.MethodPut, fill)
	n, err := two.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	filled.Wait()
	mend()
	at.wantPaused("with a full disk")
	free()
	two.stored(t, n.ID)
	two.restartWithout(t)
	at.resumesWith("what was carried from a disk that was full", sum)
	if err := one.Start(); err != nil { // so that the test can terminate the sandboxes
		t.Fatal(err)
	}
}
