package s3

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
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
	all [][2]int
}

func (d *told) damage(_ string, found, repaired int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, [2]int{found, repaired})
}

func (d *told) want(t *testing.T, what string, want ...[2]int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.all, want) {
		t.Errorf("%s: pieces that were damaged and repaired are %v, want %v", what, d.all, want)
	}
	d.all = nil
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
		alone := hostAt(t, one.server, one.url, t.TempDir(), func(o *Options) { o.OnDamage = d.damage })
		_, _, err := alone.Open(t.Context(), "one")
		if c.withNone != "" && bothy.ErrorCode(err) != c.withNone || err == nil {
			t.Errorf("%s, and nobody has it: %v", what, err)
		}
		if c.withNone != "" && (len(d.all) != 1 || d.all[0][0] < 1 || d.all[0][1] != 0 || alone.Reading().Damaged < 1) {
			t.Errorf("%s, and nobody has it: told %v", what, d.all)
		}
		d.all = nil
		two := hostAt(t, one.server, one.url, t.TempDir(), func(o *Options) {
			o.OnDamage = d.damage
			o.Elsewhere = func(ctx context.Context, p Piece, good func([]byte) bool) error {
				if good([]byte("something else")) {
					t.Errorf("%s: anything is good", what)
				}
				b, err := one.Piece(ctx, p)
				if err == nil && !good(b) {
					t.Errorf("%s: what the other host has of %+v is not good", what, p)
				}
				return err
			}
		})
		two.wantFiles("one", want)
		d.want(t, what, [2]int{c.found, c.found})
		if r := two.Reading(); r.Damaged != int64(c.found) || r.Repaired != int64(c.found) || r.Fetches != 1 || r.FetchFailures != 0 {
			t.Errorf("%s: %+v", what, r)
		}
		three := hostAt(t, one.server, one.url, t.TempDir(), func(o *Options) { o.OnDamage = d.damage })
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
	two := hostAt(t, one.server, one.url, t.TempDir(), func(o *Options) {
		o.OnDamage = d.damage
		o.Elsewhere = func(ctx context.Context, p Piece, good func([]byte) bool) error {
			b, err := one.Piece(ctx, p)
			good(b)
			return err
		}
	})
	mend := one.server.InjectFaults(s3test.Faults{Disconnect: func(r *http.Request) bool { return r.Method == http.MethodPut }})
	two.wantFiles("one", want)
	d.want(t, "it cannot be written", [2]int{1, 0})
	mend()
}

// A host looks whether what it has is still in the bucket, and brings it there again.
func TestAHostMendsWhatItHas(t *testing.T) {
	var d told
	h := newHost(t, func(o *Options) { o.OnDamage = d.damage })
	want := files()
	for _, name := range []string{"one", "deleted"} {
		h.add(name, want)
		h.keep(name)
	}
	if err := h.Mend(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.want(t, "nothing is damaged")
	chunks := h.chunksOf("one")
	h.server.Put(t, "bothy", chunks[0], "short")
	for _, key := range []string{chunks[1], "snapshots/one/" + indexName, "snapshots/deleted/" + indexName} {
		if err := h.server.Remove("bothy", key); err != nil {
			t.Fatal(err)
		}
	}
	h.mu.Lock()
	delete(h.records, "deleted")
	h.mu.Unlock()
	if err := h.Mend(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.want(t, "damaged", [2]int{3, 3})
	if slices.Contains(h.server.Objects(t, "bothy"), "snapshots/deleted/"+indexName) {
		t.Error("what was deleted is back")
	}
	other := hostAt(t, h.server, h.url, t.TempDir(), nil)
	other.wantFiles("one", want)
	// A copy that is damaged itself mends nothing.
	if err := h.server.Remove("bothy", chunks[0]); err != nil {
		t.Fatal(err)
	}
	for name := range want {
		path := filepath.Join(h.root, "one", name)
		if info, err := os.Stat(path); err != nil || info.Size() > 0 {
			if err := os.WriteFile(path, make([]byte, info.Size()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := h.Mend(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.want(t, "both are damaged", [2]int{1, 0})
}

// A host gives away only what is in its trees.
func TestPiecesAreOfTreesAlone(t *testing.T) {
	h := newHost(t, nil)
	h.add("one", files())
	for what, p := range map[string]Piece{
		"a path that climbs": {"one", "../../../etc/passwd", 0, 1},
		"an absolute path":   {"one", "/etc/passwd", 0, 1},
		"a name that climbs": {"../one", "files.tar", 0, 1},
		"too much":           {"one", "files.tar", 0, chunkSize + 1},
		"a negative start":   {"one", "files.tar", -1, 1},
		"beyond the end":     {"one", "manifest.json", 1 << 30, 1},
	} {
		if b, err := h.Piece(t.Context(), p); err == nil {
			t.Errorf("%s: %q", what, b)
		}
	}
	for _, p := range []Piece{{"none", "files.tar", 0, 1}, {"one", "none", 0, 1}, {"one", "", 0, 0}} {
		if _, err := h.Piece(t.Context(), p); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}
