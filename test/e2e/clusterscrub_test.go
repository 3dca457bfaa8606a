package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob/s3/s3test"
)

// piecesOf returns the keys of the index and of the pieces of a snapshot in the storage.
func piecesOf(t *testing.T, objects *s3test.Server, snapshot string) (index string, pieces []string) {
	t.Helper()
	prefix := "snapshots/" + snapshot + "/"
	for _, key := range objects.Objects(t, "bothy") {
		if strings.HasPrefix(key, prefix) && key != prefix+"index.json" {
			pieces = append(pieces, key)
		}
	}
	return prefix + "index.json", pieces
}

// flip changes a bit of an object in the storage and returns what the object was.
func flip(t *testing.T, objects *s3test.Server, key string) (was string) {
	t.Helper()
	was = objects.Get(t, "bothy", key)
	damaged := []byte(was)
	damaged[len(damaged)/2] ^= 1
	objects.Put(t, "bothy", key, string(damaged))
	return was
}

// verifies has a host verify what is in the object storage and checks what it finds in snapshots.
func (s *server) verifies(t *testing.T, found string) {
	t.Helper()
	if err := s.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	s.logged(t, "verified what is in the object storage.*kind=snapshots.* "+found, 1)
}

// Objects of the storage are damaged behind the hosts' backs while sandboxes are paused. A host that is
// asked to verifies the storage, and repairs it with the copies on another host's disk, so that the
// sandboxes survive that host. What no host has is named, and stays as it is.
func TestHostsRepairWhatIsDamagedInTheObjectStorage(t *testing.T) {
	t.Parallel()
	hosts, objects := newStoringHosts(t, "one", "two")
	one, two := hosts[0], hosts[1]
	b, unlucky := one.ownBox(t), one.ownBox(t)
	pid, sum := b.counts()(), b.fillWithNoise()
	unlucky.write("/workspace/file", "content")
	snapshot, lost := b.pauseStored(), unlucky.pauseStored()

	index, pieces := piecesOf(t, objects, snapshot)
	if len(pieces) < 2 {
		t.Fatalf("the snapshot has the pieces %q", pieces)
	}
	was := map[string]string{}
	for _, key := range []string{index, pieces[0]} {
		was[key] = flip(t, objects, key)
	}
	was[pieces[1]] = objects.Get(t, "bothy", pieces[1])
	if err := objects.Remove("bothy", pieces[1]); err != nil {
		t.Fatal(err)
	}
	piece := pieceOf(t, objects, lost)
	wasLost := flip(t, objects, piece)
	one.loseSnapshot(t, lost)
	left := objects.Objects(t, "bothy")

	two.verifies(t, "damaged=4 repaired=3")
	for key, want := range was {
		if objects.Get(t, "bothy", key) != want {
			t.Errorf("%s is not what it was", key)
		}
	}
	two.logged(t, "repaired damaged pieces in the object storage.*name="+snapshot+" damaged=3 repaired=3", 1)
	two.logged(t, "no host has a copy.*name="+lost+".* pieces=.* do=.*restore these objects from a backup", 1)
	for _, c := range []struct{ sandbox, kind, snapshot, pieces, repaired string }{
		{b.id, bothy.EventSnapshotRepaired, snapshot, "3", "3"},
		{unlucky.id, bothy.EventSnapshotDamaged, lost, "1", "0"},
	} {
		if e := two.awaitEvent(t, c.sandbox, c.kind); e.Data["snapshot_id"] != c.snapshot || e.Data["pieces"] != c.pieces || e.Data["repaired"] != c.repaired {
			t.Errorf("the event %s has %v", c.kind, e.Data)
		}
	}
	_, _, metrics := two.ask(t, "GET", "/metrics", "", bearer(two.Key))
	for _, want := range []string{`bothy_objects_damaged_total{kind="snapshots"} 4`, `bothy_objects_repaired_total{kind="snapshots"} 3`} {
		if !strings.Contains(metrics, "\n"+want+"\n") {
			t.Errorf("the metrics lack %s:\n%s", want, metrics)
		}
	}
	if got := objects.Objects(t, "bothy"); len(got) != len(left)+1 {
		t.Errorf("the storage had %d objects, one of them was written again, and now it has %d", len(left), len(got))
	}

	if _, err := one.Snapshots.Resume(t.Context(), unlucky.id, bothy.ResumeOptions{}); bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
		t.Errorf("a resume from what no host has: %v", err)
	}
	unlucky.wantPaused("with a damaged snapshot")
	if n, err := two.Snapshots.Snapshot(t.Context(), lost); err != nil || n.Durable != bothy.DurableStore {
		t.Errorf("the damaged snapshot: %+v, %v", n, err)
	}

	if err := one.Kill(); err != nil {
		t.Fatal(err)
	}
	objects.Put(t, "bothy", piece, wasLost) // as the log says
	two.verifies(t, "damaged=0 repaired=0")
	two.awaitHostLost(t, b.id)
	two.awaitHostLost(t, unlucky.id)
	at, there := b.at(two), unlucky.at(two)
	at.resumesWith("from what was repaired", sum)
	if got := at.sh("", "kill -0 $(cat /tmp/pid) && cat /tmp/pid"); got != pid {
		t.Errorf("the counting process is %q, and was %s", got, pid)
	}
	if _, err := two.Snapshots.Resume(t.Context(), unlucky.id, bothy.ResumeOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := there.read("/workspace/file"); got != "content" {
		t.Errorf("it was resumed with %q", got)
	}
	if err := one.Start(); err != nil { // so that the test can terminate the sandboxes
		t.Fatal(err)
	}
}
