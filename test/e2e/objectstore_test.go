package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob/s3/s3test"
)

// withObjects returns a stopped server and its object storage.
func withObjects(t *testing.T) (*server, *s3test.Server) {
	t.Helper()
	objects := s3test.StartIn(t, t.TempDir())
	s := stoppedServer(t)
	s.NoPool = true
	s.Env = append(s.Env, "BOTHY_BLOBS="+objects.Bucket(t, "bothy"), "AWS_ACCESS_KEY_ID="+s3test.AccessKey, "AWS_SECRET_ACCESS_KEY="+s3test.SecretKey)
	return s, objects
}

// stored waits for the event that a snapshot is in the object storage, and checks the snapshot.
func (s *server) stored(t *testing.T, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hangs)
	defer cancel()
	err := s.Events.Events(ctx, bothy.EventFilter{Follow: true}, func(e bothy.Event) error {
		if e.Type == bothy.EventSnapshotStored && e.Data["snapshot_id"] == id {
			cancel()
		}
		return nil
	})
	n, getErr := s.Snapshots.Snapshot(t.Context(), id)
	if getErr != nil || n.Durable != bothy.DurableStore {
		t.Fatalf("the snapshot is %+v, %v; the events ended with %v", n, getErr, err)
	}
}

// loseDisk removes all snapshots from the host.
func (s *server) loseDisk(t *testing.T) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(s.Home, "snapshots", "snp*"))
	if err != nil || len(all) == 0 {
		t.Fatalf("snapshots on the host: %q, %v", all, err)
	}
	for _, dir := range all {
		s.loseSnapshot(t, filepath.Base(dir))
	}
}

// loseSnapshot has the server's disk lose a snapshot.
func (s *server) loseSnapshot(t *testing.T, id string) {
	t.Helper()
	dir := filepath.Join(s.Home, "snapshots", id)
	if _, err := os.Stat(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

// A server is killed during an upload, starts without the storage, loses its disk, and gets the storage
// back. The paused sandbox is complete.
func TestSnapshotsSurviveTheLossOfTheDisk(t *testing.T) {
	t.Parallel()
	s, objects := withObjects(t)
	for _, at := range []string{"s3.chunk", "s3.commit", "s3.uploaded"} {
		if err := s.Start(at + "=kill"); err != nil {
			t.Fatal(err)
		}
		b := s.newBox(t, bothy.SandboxCreate{MemoryMB: 64})
		b.write("/workspace/file", "content of "+at)
		// The answer may be lost with the server, but not the pause.
		_, _ = s.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{})
		if err := s.Dies(); err != nil {
			t.Fatal(err)
		}
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		page, err := s.Snapshots.Snapshots(t.Context(), bothy.SnapshotFilter{SandboxID: b.id})
		if err != nil || len(page.Items) != 1 {
			t.Fatalf("%s: snapshots are %+v, %v", at, page.Items, err)
		}
		s.stored(t, page.Items[0].ID)
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
		s.loseDisk(t)
		if at == "s3.chunk" {
			s.withoutStorage(t, objects, b)
		} else if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is awake", func() bool {
			_, err := s.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{})
			return err == nil
		})
		if got := b.read("/workspace/file"); got != "content of "+at {
			t.Errorf("%s: the file contains %q", at, got)
		}
		n, err := s.Snapshots.CreateSnapshot(t.Context(), b.id, bothy.SnapshotCreate{Name: "waited", Wait: bothy.DurableStore})
		if err != nil || n.Durable != bothy.DurableStore {
			t.Errorf("%s: waiting for the snapshot returned %+v, %v", at, n, err)
		}
		if err := s.Sandboxes.Terminate(t.Context(), b.id); err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Start(); err != nil { // so that the test can terminate the sandboxes
		t.Fatal(err)
	}
}

// withoutStorage starts the server while its storage is unavailable, and then restores the storage.
func (s *server) withoutStorage(t *testing.T, objects *s3test.Server, b *box) {
	t.Helper()
	mend := objects.InjectFaults(s3test.Faults{Disconnect: func(*http.Request) bool { return true }})
	defer mend()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{}); bothy.ErrorCode(err) != bothy.CodeStore {
		t.Errorf("a resume while the storage is unavailable: %v", err)
	}
	if now := b.get(); now.State != bothy.StatePaused {
		t.Errorf("after a failed resume the sandbox is %s", now.State)
	}
}

// A server refuses to start with another server's object storage, or without its own.
func TestWrongObjectStorage(t *testing.T) {
	t.Parallel()
	s, objects := withObjects(t)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	b := s.newBox(t, bothy.SandboxCreate{MemoryMB: 64})
	if _, err := s.Snapshots.Pause(t.Context(), b.id, bothy.PauseOptions{Wait: bothy.DurableStore}); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s.loseDisk(t)
	own := s.Env
	for what, blobs := range map[string]string{
		"another's":   objects.URL("theirs"),
		"an empty":    objects.Bucket(t, "empty"),
		"none":        "",
		"no":          objects.URL("nowhere"),
		"no URL of a": "http://bucket",
	} {
		if what == "another's" {
			objects.Bucket(t, "theirs")
			objects.Put(t, "theirs", "bothy.json", fmt.Sprintf(`{"format":1,"owner":%q,"created_at":"2026-01-02T03:04:05Z"}`, "somebody"))
		}
		s.Env = append(own, "BOTHY_BLOBS="+blobs)
		if err := s.Start(); err == nil {
			t.Errorf("it starts with %s bucket", what)
			if err := s.Stop(); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.Env = own
	mark := objects.Get(t, "bothy", "bothy.json")
	if err := objects.Remove("bothy", "bothy.json"); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(); err == nil {
		t.Fatal("it starts with its bucket emptied")
	}
	objects.Put(t, "bothy", "bothy.json", mark)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Snapshots.Resume(t.Context(), b.id, bothy.ResumeOptions{}); err != nil {
		t.Errorf("a start with its own bucket: %v", err)
	}
}
