package s3

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob/s3/s3test"
)

// told is what a host says of damage.
type told struct {
	mu  sync.Mutex
	all []Damage
}

func (d *told) damage(n Damage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, n)
}

// want compares how many pieces of each tree were damaged, repaired and lost.
func (d *told) want(t *testing.T, what string, want ...[3]int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	var got [][3]int
	for _, n := range d.all {
		got = append(got, [3]int{n.Found, n.Repaired, len(n.Lost)})
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: pieces that were damaged, repaired and lost are %v, want %v", what, got, want)
	}
	d.all = nil
}

// repairs has a host repair with the copies of others.
func (h *host) repairs(d *told, others ...*host) *host {
	h.bucket.SetRepairs(Repairs{OnDamage: d.damage, Copies: func(ctx context.Context, p Piece, good func([]byte) bool) error {
		if good([]byte("something else")) {
			h.t.Errorf("anything is good for %+v", p)
		}
		for _, o := range others {
			if b, err := o.Piece(ctx, p); err == nil && good(b) {
				return nil
			}
		}
		return fs.ErrNotExist
	}})
	return h
}

// chunksOf are the keys of the chunks in the bucket.
func (h *host) chunksOf(name string) (keys []string) {
	for _, key := range h.server.Objects(h.t, "bothy") {
		if strings.HasPrefix(key, "snapshots/"+name+"/") && !strings.HasSuffix(key, indexName) {
			keys = append(keys, key)
		}
	}
	return keys
}

// What the bucket has damaged comes from the disk of another host, and is whole in the bucket
// afterwards.
func TestAnotherHostMendsWhatIsDamaged(t *testing.T) {
	one := newHost(t, nil)
	want := files()
	one.add("one", want)
	one.keep("one")
	chunks := one.chunksOf("one")
	if len(chunks) < 5 {
		t.Fatalf("chunks: %q", chunks)
	}
	index := "snapshots/one/" + indexName
	remove := func(key string) {
		if err := one.server.Remove("bothy", key); err != nil {
			t.Fatal(err)
		}
	}
	for what, c := range map[string]struct {
		damage   func()
		found    int
		withNone bothy.Code // what is said where nobody has it
	}{
		"other bytes": {func() {
			one.server.Put(t, "bothy", chunks[0], "other bytes")
			one.server.Put(t, "bothy", chunks[1], "other bytes")
		}, 2, bothy.CodeSnapshotDamaged},
		"a short object":       {func() { one.server.Put(t, "bothy", chunks[2], "x") }, 1, bothy.CodeSnapshotDamaged},
		"a missing one":        {func() { remove(chunks[3]) }, 1, bothy.CodeSnapshotDamaged},
		"an index of nonsense": {func() { one.server.Put(t, "bothy", index, "{") }, 1, bothy.CodeSnapshotDamaged},
		"no index":             {func() { remove(index) }, 1, ""},
	} {
		c.damage()
		var d told
		alone := hostAt(t, one.server, one.url, t.TempDir(), nil).repairs(&d)
		_, _, err := alone.Open(t.Context(), "one")
		if c.withNone != "" && bothy.ErrorCode(err) != c.withNone || err == nil {
			t.Errorf("%s, and nobody has it: %v", what, err)
		}
		if c.withNone != "" && (len(d.all) != 1 || d.all[0].Found < 1 || d.all[0].Repaired != 0 || len(d.all[0].Lost) != d.all[0].Found || alone.bucket.Counts("snapshots").Damaged < 1) {
			t.Errorf("%s, and nobody has it: told %v", what, d.all)
		}
		d.all = nil
		two := hostAt(t, one.server, one.url, t.TempDir(), nil).repairs(&d, one)
		two.wantFiles("one", want)
		d.want(t, what, [3]int{c.found, c.found, 0})
		if r, n := two.Reading(), two.bucket.Counts("snapshots"); n.Damaged != int64(c.found) || n.Repaired != int64(c.found) || r.Fetches != 1 || r.FetchFailures != 0 {
			t.Errorf("%s: %+v %+v", what, r, n)
		}
		three := hostAt(t, one.server, one.url, t.TempDir(), nil).repairs(&d)
		three.wantFiles("one", want)
		d.want(t, what+", afterwards")
	}
}

// Where what is damaged cannot be written again, who needs it gets it all the same.
func TestWhatIsDamagedIsFetchedWhileNothingCanBeWritten(t *testing.T) {
	one := newHost(t, nil)
	want := files()
	one.add("one", want)
	one.keep("one")
	one.server.Put(t, "bothy", one.chunksOf("one")[0], "other bytes")
	var d told
	two := hostAt(t, one.server, one.url, t.TempDir(), nil).repairs(&d, one)
	mend := one.server.InjectFaults(s3test.Faults{Disconnect: func(r *http.Request) bool { return r.Method == http.MethodPut }})
	two.wantFiles("one", want)
	if len(d.all) != 1 || !errors.Is(d.all[0].Err, ErrUnavailable) {
		t.Errorf("it cannot be written: %+v", d.all)
	}
	d.want(t, "it cannot be written", [3]int{1, 0, 0})
	mend()
}

// A host gives away only what is in its trees.
func TestPiecesAreOfTreesAlone(t *testing.T) {
	h := newHost(t, nil)
	h.add("one", files())
	for what, p := range map[string]Piece{
		"a path that climbs": {Name: "one", File: "../../../etc/passwd", At: 0, Size: 1},
		"an absolute path":   {Name: "one", File: "/etc/passwd", At: 0, Size: 1},
		"a name that climbs": {Name: "../one", File: "files.tar", At: 0, Size: 1},
		"too much":           {Name: "one", File: "files.tar", At: 0, Size: chunkSize + 1},
		"a negative start":   {Name: "one", File: "files.tar", At: -1, Size: 1},
		"beyond the end":     {Name: "one", File: "manifest.json", At: 1 << 30, Size: 1},
	} {
		if b, err := h.Piece(t.Context(), p); err == nil {
			t.Errorf("%s: %q", what, b)
		}
	}
	for _, p := range []Piece{{Name: "none", File: "files.tar", At: 0, Size: 1}, {Name: "one", File: "none", At: 0, Size: 1}, {Name: "one", File: "", At: 0, Size: 0}} {
		if _, err := h.Piece(t.Context(), p); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// An index that is damaged on this host is replaced with the bucket's.
func TestADamagedIndexOnThisHost(t *testing.T) {
	h := newHost(t, nil)
	h.add("one", files())
	h.keep("one")
	path := h.state(indexes, "one")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(whole)
	damaged[len(damaged)/2] ^= 1
	if err := os.WriteFile(path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Piece(t.Context(), Piece{Name: "one"}); bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
		t.Errorf("it is given to other hosts: %v", err)
	}
	h.forget()
	h.wantFiles("one", files())
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, whole) {
		t.Errorf("the index on this host is not the bucket's: %v", err)
	}
}
