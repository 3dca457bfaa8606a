package s3

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy/blob/s3/s3test"
)

// A tree comes back as it was, and one that was removed is gone.
func TestTrees(t *testing.T) {
	url := bucketFor(t, s3test.Start(t), t.TempDir())
	b := openBucket(t, url)
	dir, ctx := t.TempDir(), t.Context()
	if err := b.PutTree(ctx, "engines", "a", dir); err == nil {
		t.Error("something was stored in a place that is nobody's yet")
	}
	if err := b.Claim(ctx, claimOf(url, "owner")); err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte("content"), chunkSize/4)
	write := func(name string, content []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("large", content)
	write("small", []byte("small"))
	if err := b.PutTree(ctx, "engines", "a", dir); err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	if err := b.GetTree(ctx, "engines", "a", to, 0); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{"large": content, "small": []byte("small")} {
		if got, err := os.ReadFile(filepath.Join(to, name)); !bytes.Equal(got, want) {
			t.Errorf("%s came back with %d bytes, %v", name, len(got), err)
		}
	}
	if err := b.RemoveTree(ctx, "engines", "a"); err != nil {
		t.Fatal(err)
	}
	if err := b.GetTree(ctx, "engines", "a", t.TempDir(), 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was removed: %v", err)
	}
}

// A tree that is stored again replaces one that is damaged, whatever is damaged in it.
func TestADamagedTreeIsReplaced(t *testing.T) {
	server := s3test.Start(t)
	url := server.Bucket(t, "bothy")
	b, dir, ctx := openBucket(t, url), t.TempDir(), t.Context()
	if err := b.Claim(ctx, claimOf(url, "owner")); err != nil {
		t.Fatal(err)
	}
	for name, data := range files() {
		full := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(full), 0o711), os.WriteFile(full, data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.PutTree(ctx, "engines", "a", dir); err != nil {
		t.Fatal(err)
	}
	whole := objects(t, server)
	for what, damage := range map[string]func(*testing.T, *s3test.Server, string){"a flipped bit": flip, "missing": remove} {
		for key := range whole {
			if !strings.HasPrefix(key, "engines/a/") {
				continue
			}
			damage(t, server, key)
			if err := b.PutTree(ctx, "engines", "a", dir); err != nil {
				t.Fatal(err)
			}
			if !maps.Equal(objects(t, server), whole) {
				t.Errorf("%s, %s: the bucket is not as it was", key, what)
			}
		}
	}
}
