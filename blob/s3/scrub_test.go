package s3

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob/s3/s3test"
)

// copiesOf are the folders of trees on another host.
type copiesOf map[Tree]string

// piece serves a piece as a host does.
func (c copiesOf) piece(ctx context.Context, p Piece) ([]byte, error) {
	dir, ok := c[Tree{p.Kind, p.Name}]
	if !ok {
		return nil, fs.ErrNotExist
	}
	if p.File == "" {
		return IndexOf(ctx, dir)
	}
	f, err := os.Open(filepath.Join(dir, p.File))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadPiece(f, p)
}

// shelf is a bucket with a tree of each kind.
type shelf struct {
	*Bucket
	t      *testing.T
	server *s3test.Server
	trees  []Tree
	whole  map[string]string // the objects as they were uploaded
	copies copiesOf
	told   told
	// deleted are trees that the records do not name any more.
	deleted map[Tree]bool
}

func newShelf(t *testing.T) *shelf {
	server := s3test.Start(t)
	url := server.Bucket(t, "bothy")
	s := &shelf{Bucket: openBucket(t, url), t: t, server: server, whole: map[string]string{}, copies: copiesOf{}, deleted: map[Tree]bool{}}
	if err := s.Claim(t.Context(), claimOf(url, "owner")); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"engines", "goldens", "snapshots", "templates"} {
		dir := t.TempDir()
		for name, data := range files() {
			full := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o711), os.WriteFile(full, data, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.PutTree(t.Context(), kind, "one", dir); err != nil {
			t.Fatal(err)
		}
		s.trees, s.copies[Tree{kind, "one"}] = append(s.trees, Tree{kind, "one"}), dir
	}
	for _, key := range server.Objects(t, "bothy") {
		s.whole[key] = server.Get(t, "bothy", key)
	}
	s.SetRepairs(Repairs{OnDamage: s.told.damage, Copies: func(ctx context.Context, p Piece, good func([]byte) bool) error {
		if good([]byte("something else")) {
			t.Errorf("anything is good for %+v", p)
		}
		b, err := s.copies.piece(ctx, p)
		if err == nil && !good(b) {
			err = fs.ErrNotExist
		}
		return err
	}})
	return s
}

func (s *shelf) scrub(trees ...Tree) error {
	return s.Scrub(s.t.Context(), Scrub{
		Trees: trees,
		Named: func(_ context.Context, t Tree) (bool, error) { return !s.deleted[t], nil },
		Pace:  func(ctx context.Context, _ int64) error { return ctx.Err() },
	})
}

// objects are the keys of a tree's chunks.
func (s *shelf) objects(t Tree) (keys []string) {
	for key := range s.whole {
		if strings.HasPrefix(key, t.Kind+"/"+t.Name+"/") && !strings.HasSuffix(key, indexName) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

func (s *shelf) now() map[string]string {
	now := map[string]string{}
	for _, key := range s.server.Objects(s.t, "bothy") {
		now[key] = s.server.Get(s.t, "bothy", key)
	}
	return now
}

func (s *shelf) remove(key string) {
	s.t.Helper()
	if err := s.server.Remove("bothy", key); err != nil {
		s.t.Fatal(err)
	}
}

// flip changes one bit in the middle of an object.
func (s *shelf) flip(key string) {
	b := []byte(s.whole[key])
	b[len(b)/2] ^= 1
	s.server.Put(s.t, "bothy", key, string(b))
}

// ways are those to damage an object.
var ways = map[string]func(s *shelf, key string){
	"a flipped bit": (*shelf).flip,
	"cut short":     func(s *shelf, key string) { s.server.Put(s.t, "bothy", key, s.whole[key][:len(s.whole[key])-1]) },
	"missing":       (*shelf).remove,
}

// Damage to a tree of any kind, whether to a chunk or to the index with the small files, is found,
// and repaired from a copy.
func TestScrubRepairs(t *testing.T) {
	s := newShelf(t)
	if err := s.scrub(s.trees...); err != nil {
		t.Fatal(err)
	}
	s.told.want(t, "nothing is damaged")
	before := map[string]Counts{}
	for _, tree := range s.trees {
		n := s.Counts(tree.Kind)
		if want := int64(len(s.objects(tree)) + 1); n.Checked < want || n.Damaged != 0 {
			t.Errorf("%s: %+v, of %d objects", tree.Kind, n, want)
		}
		before[tree.Kind] = n
	}
	damaged := 0
	for what, damage := range ways {
		for _, tree := range s.trees {
			damage(s, s.objects(tree)[0])
			damage(s, tree.Kind+"/one/"+indexName)
		}
		damaged += 2
		if err := s.scrub(s.trees...); err != nil {
			t.Fatal(err)
		}
		s.told.want(t, what, [3]int{2, 2, 0}, [3]int{2, 2, 0}, [3]int{2, 2, 0}, [3]int{2, 2, 0})
		if !maps.Equal(s.now(), s.whole) {
			t.Errorf("%s: the bucket is not as it was", what)
		}
	}
	for _, tree := range s.trees {
		if n := s.Counts(tree.Kind); n.Damaged != int64(damaged) || n.Repaired != int64(damaged) || n.Checked != before[tree.Kind].Checked*4 {
			t.Errorf("%s: %+v", tree.Kind, n)
		}
	}
}

// Without a copy, or with one that is damaged as well, the damage is reported piece by piece, and
// nothing is deleted or written.
func TestScrubReportsWhatIsLost(t *testing.T) {
	for what, spoil := range map[string]func(s *shelf){
		"no copy": func(s *shelf) { s.copies = nil },
		"damaged copies": func(s *shelf) {
			for _, dir := range s.copies {
				for name, data := range files() {
					if len(data) > 0 {
						if err := os.WriteFile(filepath.Join(dir, name), make([]byte, len(data)), 0o600); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		},
	} {
		s := newShelf(t)
		spoil(s)
		for _, tree := range s.trees {
			keys := s.objects(tree)
			s.flip(keys[0])
			s.remove(keys[1])
		}
		was := s.now()
		if err := s.scrub(s.trees...); err != nil {
			t.Fatal(err)
		}
		for _, d := range s.told.all {
			if d.Name != "one" || len(d.Lost) != 2 || d.Lost[0].Kind != d.Kind || d.Lost[0].Name != "one" || d.Lost[0].File == "" || d.Err != nil {
				t.Errorf("%s: told %+v", what, d)
			}
		}
		s.told.want(t, what, [3]int{2, 0, 2}, [3]int{2, 0, 2}, [3]int{2, 0, 2}, [3]int{2, 0, 2})
		if !maps.Equal(s.now(), was) {
			t.Errorf("%s: the bucket was changed", what)
		}
	}
}

// A lost index is reported too.
func TestScrubReportsALostIndex(t *testing.T) {
	s := newShelf(t)
	s.copies = nil
	s.remove("templates/one/" + indexName)
	if err := s.scrub(Tree{"templates", "one"}); err != nil {
		t.Fatal(err)
	}
	if len(s.told.all) != 1 || len(s.told.all[0].Lost) != 1 || s.told.all[0].Lost[0].String() != "its index" {
		t.Errorf("told %+v", s.told.all)
	}
}

// What the records do not name any more is not restored while it is being deleted.
func TestScrubRestoresNothingThatWasDeleted(t *testing.T) {
	s := newShelf(t)
	gone, half := s.trees[0], s.trees[1]
	s.deleted[gone], s.deleted[half] = true, true
	s.remove(gone.Kind + "/one/" + indexName)
	s.remove(s.objects(half)[0])
	was := s.now()
	if err := s.scrub(s.trees...); err != nil {
		t.Fatal(err)
	}
	s.told.want(t, "deleted")
	if !maps.Equal(s.now(), was) {
		t.Error("something was written")
	}
}

// Storage that is unavailable or returns other bytes only once is no damage.
func TestScrubWhileStorageIsUnavailable(t *testing.T) {
	s := newShelf(t)
	mend := s.server.InjectFaults(s3test.Faults{Disconnect: func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/goldens/") }})
	if err := s.scrub(s.trees...); !errors.Is(err, ErrUnavailable) {
		t.Errorf("unavailable: %v", err)
	}
	if n := s.Counts("snapshots"); n.Checked != 0 {
		t.Errorf("it continued: %+v", n)
	}
	mend()
	seen := map[string]bool{}
	mend = s.server.InjectFaults(s3test.Faults{Answer: func(r *http.Request, body []byte) []byte {
		if seen[r.URL.Path] || len(body) == 0 || r.Method != http.MethodGet {
			return body
		}
		seen[r.URL.Path] = true
		body = bytes.Clone(body)
		body[len(body)/2] ^= 1
		return body
	}})
	defer mend()
	if err := s.scrub(s.trees...); err != nil {
		t.Error(err)
	}
	s.told.want(t, "damaged on the way")
}

// A fetch repairs as well, of every kind.
func TestAFetchRepairsEveryKind(t *testing.T) {
	s := newShelf(t)
	for _, tree := range s.trees {
		s.flip(s.objects(tree)[0])
		s.flip(tree.Kind + "/one/" + indexName)
		to := t.TempDir()
		if err := s.GetTree(t.Context(), tree.Kind, "one", to, 0); err != nil {
			t.Fatal(err)
		}
		for name, want := range files() {
			if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %s came back with %d bytes, %v", tree.Kind, name, len(got), err)
			}
		}
		s.told.want(t, tree.Kind, [3]int{2, 2, 0})
	}
	if !maps.Equal(s.now(), s.whole) {
		t.Error("the bucket is not as it was")
	}
	// Nothing is deleted if there is no copy.
	s.copies = nil
	s.flip(s.objects(s.trees[0])[0])
	was := s.now()
	if err := s.GetTree(t.Context(), s.trees[0].Kind, "one", t.TempDir(), 0); bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
		t.Errorf("without a copy: %v", err)
	}
	s.told.want(t, "without a copy", [3]int{1, 0, 1})
	if !maps.Equal(s.now(), was) {
		t.Error("the bucket was changed")
	}
}

// A damaged index does not keep its tree from being stored again.
func TestATreeWithADamagedIndexIsStoredAgain(t *testing.T) {
	s := newShelf(t)
	tree := s.trees[0]
	s.flip(tree.Kind + "/one/" + indexName)
	if err := s.PutTree(t.Context(), tree.Kind, "one", s.copies[tree]); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(s.now(), s.whole) {
		t.Error("the bucket is not as it was")
	}
}

// No flipped bit in an index is unnoticed, even in a small file, a name or the checksum itself.
func TestIndexesAreSealed(t *testing.T) {
	i := &index{Version: 1, Files: []file{{Name: "f", Mode: 0o600, Size: 5, Data: []byte("small")}}}
	text, err := i.encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeIndex("x", text); err != nil {
		t.Fatal(err)
	}
	for at := range text {
		for bit := range 8 {
			flipped := bytes.Clone(text)
			flipped[at] ^= 1 << bit
			if _, err := decodeIndex("x", flipped); bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged {
				t.Errorf("%s: %v", flipped, err)
			}
		}
	}
	// A newer server may add a field.
	more := bytes.Replace(text[:len(text)-sealBytes], []byte(`"files"`), []byte(`"more":1,"files"`), 1)
	if _, err := decodeIndex("x", seal(more)); err != nil {
		t.Error(err)
	}
}

// A tree whose files are damaged on this host is not uploaded.
func TestADamagedFileIsNotUploaded(t *testing.T) {
	h := newHost(t, func(o *Options) {
		o.Verify = func(_ context.Context, name, dir string) error {
			if b, err := os.ReadFile(filepath.Join(dir, "files.tar")); err != nil || name != "one" || !bytes.Equal(b, files()["files.tar"]) {
				return bothy.Errorf(bothy.CodeSnapshotDamaged, "the checksum of files.tar is wrong")
			}
			return nil
		}
	})
	h.add("one", files())
	path := filepath.Join(h.root, "one", "files.tar")
	if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.Keep("one")
	if err := h.WaitKept(t.Context(), "one"); !errors.Is(err, fs.ErrNotExist) || h.Kept("one") {
		t.Errorf("a damaged tree: %v", err)
	}
	if keys := h.chunksOf("one"); len(keys) > 0 {
		t.Errorf("stored are %q", keys)
	}
	if err := os.WriteFile(path, files()["files.tar"], 0o600); err != nil {
		t.Fatal(err)
	}
	h.keep("one")
	h.forget()
	h.wantFiles("one", files())
}
