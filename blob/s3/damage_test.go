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
	"strings"
	"sync"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/blob/s3/s3test"
)

// chunksOf are the keys of the chunks in the bucket.
func (h *host) chunksOf(name string) (keys []string) {
	for _, key := range h.server.Objects(h.t, "bothy") {
		if strings.HasPrefix(key, "snapshots/"+name+"/") && !strings.HasSuffix(key, indexName) {
			keys = append(keys, key)
		}
	}
	return keys
}

// objects are all objects in the bucket, by their keys.
func objects(t *testing.T, server *s3test.Server) map[string]string {
	all := map[string]string{}
	for _, key := range server.Objects(t, "bothy") {
		all[key] = server.Get(t, "bothy", key)
	}
	return all
}

// flip changes one bit in the middle of an object.
func flip(t *testing.T, server *s3test.Server, key string) {
	b := []byte(server.Get(t, "bothy", key))
	b[len(b)/2] ^= 1
	server.Put(t, "bothy", key, string(b))
}

func remove(t *testing.T, server *s3test.Server, key string) {
	if err := server.Remove("bothy", key); err != nil {
		t.Fatal(err)
	}
}

// Damage in the bucket is an error that says so, leaves nothing on this host and changes nothing in the
// bucket. Once the object is restored, the tree is whole again.
func TestDamageInTheBucket(t *testing.T) {
	one := newHost(t, nil)
	want := files()
	one.add("one", want)
	one.keep("one")
	chunks := one.chunksOf("one")
	if len(chunks) < 5 {
		t.Fatalf("chunks: %q", chunks)
	}
	index := "snapshots/one/" + indexName
	for what, c := range map[string]struct {
		key    string
		damage func()
	}{
		"a flipped bit":          {chunks[0], func() { flip(t, one.server, chunks[0]) }},
		"other bytes":            {chunks[1], func() { one.server.Put(t, "bothy", chunks[1], "other bytes") }},
		"a missing chunk":        {chunks[2], func() { remove(t, one.server, chunks[2]) }},
		"a flipped bit in index": {index, func() { flip(t, one.server, index) }},
		"an index of nonsense":   {index, func() { one.server.Put(t, "bothy", index, "{") }},
	} {
		whole := one.server.Get(t, "bothy", c.key)
		c.damage()
		was := objects(t, one.server)
		two := hostAt(t, one.server, one.url, t.TempDir(), nil)
		if _, _, err := two.Open(t.Context(), "one"); bothy.ErrorCode(err) != bothy.CodeSnapshotDamaged || bothy.AsError(err).Hint == "" {
			t.Errorf("%s: %v", what, err)
		}
		two.wantClean()
		if !maps.Equal(objects(t, one.server), was) {
			t.Errorf("%s: the bucket was changed", what)
		}
		one.server.Put(t, "bothy", c.key, whole)
		two.wantFiles("one", want)
	}
}

// What is damaged only once, on the way, is read again.
func TestDamageOnTheWay(t *testing.T) {
	one := newHost(t, nil)
	want := files()
	one.add("one", want)
	one.keep("one")
	var mu sync.Mutex
	seen := map[string]bool{}
	mend := one.server.InjectFaults(s3test.Faults{Answer: func(r *http.Request, body []byte) []byte {
		mu.Lock()
		defer mu.Unlock()
		if seen[r.URL.Path] || len(body) == 0 || r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/snapshots/one/") {
			return body
		}
		seen[r.URL.Path] = true
		body = bytes.Clone(body)
		body[len(body)/2] ^= 1
		return body
	}})
	defer mend()
	hostAt(t, one.server, one.url, t.TempDir(), nil).wantFiles("one", want)
	if len(seen) < 5 {
		t.Errorf("damaged on the way were only %v", seen)
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
	h.forget()
	h.wantFiles("one", files())
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, whole) {
		t.Errorf("the index on this host is not the bucket's: %v", err)
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
