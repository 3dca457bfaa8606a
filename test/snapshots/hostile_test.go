package snapshots

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/snapshot"
)

// everything is a quota without a limit.
type everything struct{}

func (everything) Take(int64) error { return nil }

// reworked unpacks an archive, changes it, and packs it again with correct checksums and another key, as
// anybody can.
func reworked(t *testing.T, archive []byte, key snapshot.Key, trusted string, change func(dir string, m *snapshot.Manifest)) []byte {
	t.Helper()
	dir := t.TempDir()
	m, err := snapshot.Import(t.Context(), bytes.NewReader(archive), dir, snapshot.ImportOptions{
		Trusted: []snapshot.PublicKey{snapshot.PublicKey(trusted)},
		Accept:  func(*snapshot.Manifest, int64) (snapshot.Room, error) { return everything{}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	change(dir, m)
	if err := snapshot.Seal(t.Context(), dir, m); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := snapshot.Export(t.Context(), &b, dir, m, "", key); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A forged kernel state never reaches the engine, even with correct checksums and the right engine build:
// only the files are restored.
func TestForgedMemoryIsNotRestored(t *testing.T) {
	t.Parallel()
	b := shared.newBox(t, bothy.SandboxCreate{})
	b.startCounter()
	b.sh("echo kept >/workspace/file")
	ctx, cancel := within(t)
	defer cancel()
	var archive bytes.Buffer
	if err := shared.Mover.ExportSnapshot(ctx, b.snapshot("").ID, "", &archive); err != nil {
		t.Fatal(err)
	}
	forge := func(dir string, m *snapshot.Manifest) {
		path := filepath.Join(dir, "memory", "checkpoint.img")
		state, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		state[len(state)/2] ^= 4
		if err := os.WriteFile(path, state, 0o600); err != nil {
			t.Fatal(err)
		}
		m.SandboxID = b.id // so that this sandbox could be rolled back to it
	}
	for name, key := range map[string]snapshot.Key{
		"without a signature": {},
		"signed by a tenant":  snapshot.NewKey(bytes.Repeat([]byte{7}, 32)),
	} {
		forged := reworked(t, archive.Bytes(), key, shared.archiveKey(t), forge)
		n, err := shared.Mover.ImportSnapshot(ctx, "forged", "", bytes.NewReader(forged))
		if err != nil || n.Kind != bothy.SnapshotFiles || n.Detail == "" || n.SandboxID == b.id {
			t.Fatalf("%s: imported %+v, %v", name, n, err)
		}
		if parts, err := os.ReadDir(filepath.Join(shared.Home, "snapshots", n.ID)); err != nil || len(parts) != 2 {
			t.Errorf("%s: on disk are %v, %v", name, parts, err)
		}
		c := shared.newBox(t, bothy.SandboxCreate{SnapshotID: n.ID})
		sb := c.get()
		if c.filesOnly(sb); sb.Resumed.Detail != n.Detail {
			t.Errorf("%s: resumed as %+v", name, sb.Resumed)
		}
		if got := c.sh("cat /workspace/file"); got != "kept" {
			t.Errorf("%s: it has %q", name, got)
		}
		_, err = shared.Snapshots.Rollback(ctx, b.id, n.ID)
		refused(t, name+": a rollback to it", err, bothy.CodeInvalid)
	}
	b.is(bothy.StateRunning)
}

// An archive of 100 KB that unpacks to hundreds of megabytes is refused before anything is written: by
// the quota, and without one by what the sandbox that it names could hold.
func TestBombIsRefusedBeforeItIsUnpacked(t *testing.T) {
	t.Parallel()
	s := stoppedServer(t)
	s.NoPool = true
	s.Settings = "snapshots: {project_quota_mb: 300}\n"
	s.restart(t)
	b := s.newBox(t, bothy.SandboxCreate{DiskMB: 64, MemoryMB: 128})
	ctx, cancel := within(t)
	defer cancel()
	var archive bytes.Buffer
	n := b.snapshot("")
	if err := s.Mover.ExportSnapshot(ctx, n.ID, "", &archive); err != nil {
		t.Fatal(err)
	}
	bomb := func(size int64, diskMB int) []byte {
		return reworked(t, archive.Bytes(), snapshot.Key{}, s.archiveKey(t), func(dir string, m *snapshot.Manifest) {
			fill(t, filepath.Join(dir, snapshot.FilesTar), size)
			m.Sandbox.DiskMB = diskMB
		})
	}
	large, small := bomb(400<<20, 4096), bomb(1500<<20, 64)
	if len(large) > archive.Len()+1<<20 {
		t.Fatalf("it has %d bytes", len(large))
	}
	before := s.diskBytes(t)
	ctx, cancel = within(t) // making them takes a while
	defer cancel()
	_, err := s.Mover.ImportSnapshot(ctx, "", "", bytes.NewReader(large))
	refused(t, "over the quota", err, bothy.CodeQuota)
	_, err = s.Mover.ImportSnapshot(ctx, "", "", bytes.NewReader(small))
	refused(t, "more than its disk", err, bothy.CodeInvalid)
	s.Settings = "snapshots: {min_free_disk_mb: 100000000}\n"
	s.restart(t)
	_, err = s.Mover.ImportSnapshot(ctx, "", "", bytes.NewReader(large))
	refused(t, "without quota, on a host that wants its disk", err, bothy.CodeDiskFull)
	if after := s.diskBytes(t); after > before+1<<20 {
		t.Errorf("the snapshots took %d bytes, and now take %d", before, after)
	}
	s.holds(t, 1)
}

// fill makes a file of this many bytes, none of them zero.
func fill(t *testing.T, path string, size int64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := bytes.Repeat([]byte{7}, 1<<20)
	for done := int64(0); done < size; done += int64(len(block)) {
		if _, err := f.Write(block); err != nil {
			t.Fatal(err)
		}
	}
}

// A forged header cannot make the server spend much time on a passphrase.
func TestPassphraseThatCostsTooMuch(t *testing.T) {
	t.Parallel()
	ctx, cancel := within(t)
	defer cancel()
	for _, factor := range []string{"19", "21", "22"} {
		a := "age-encryption.org/v1\n-> scrypt " + strings.Repeat("A", 22) + " " + factor + "\n" + strings.Repeat("A", 43) + "\n--- " + strings.Repeat("A", 43) + "\n"
		_, err := shared.Mover.ImportSnapshot(ctx, "", "x", strings.NewReader(a))
		refused(t, "work factor "+factor, err, bothy.CodeInvalid)
	}
}
