package sbom

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/template/tree"
)

func put(t testing.TB, files *tree.Tree, name string, n *tree.Node) {
	t.Helper()
	if err := files.Put(name, n); err != nil {
		t.Fatal(err)
	}
}

// A large description under many names was read and parsed once for each of them.
func TestAFileWithManyNamesIsReadOnce(t *testing.T) {
	files := tree.New(day)
	one := &tree.Node{Mode: unix.S_IFREG, Data: tree.Text("Name: x\nVersion: 1\n\n" + strings.Repeat("text\n", 1000))}
	for i := range 1000 {
		put(t, files, fmt.Sprintf("lib/%d.dist-info/METADATA", i), one)
	}
	var taken atomic.Int64
	ctx := bothy.WithMemory(t.Context(), func(_ context.Context, n int64) error { taken.Add(n); return nil })
	list, err := Packages(ctx, files, nil)
	if err != nil || len(list) != 1 || list[0].Path != "/lib/0.dist-info/METADATA" {
		t.Errorf("%d packages, %v", len(list), err)
	}
	if most := 3*one.Data.Size + packageBytes; taken.Load() > most {
		t.Errorf("%d bytes were taken, and not %d", taken.Load(), most)
	}
}

func TestReadingEndsWithItsContext(t *testing.T) {
	files := tree.New(day)
	for i := range 100 {
		put(t, files, fmt.Sprintf("lib/%d.dist-info/METADATA", i), &tree.Node{Mode: unix.S_IFREG, Data: tree.Text("Name: x\nVersion: 1\n")})
	}
	ctx, cancel := context.WithCancel(t.Context())
	ctx = bothy.WithMemory(ctx, func(context.Context, int64) error { cancel(); return nil }) // at the first file
	list, err := Packages(ctx, files, nil)
	if !errors.Is(err, context.Canceled) || len(list) > 1 {
		t.Errorf("%d packages, %v", len(list), err)
	}
	full := bothy.WithMemory(t.Context(), func(context.Context, int64) error { return bothy.Errorf(bothy.CodeRateLimited, "full") })
	if _, err := Packages(full, files, nil); bothy.ErrorCode(err) != bothy.CodeRateLimited {
		t.Errorf("without memory: %v", err)
	}
}

func TestDescriptionsHaveALimit(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(large, maxFile); err != nil {
		t.Fatal(err)
	}
	f := finder{ctx: t.Context(), seen: map[*tree.Node]bool{}, bytes: maxBytes - maxFile + 1}
	err := f.read("x", &tree.Node{Data: tree.Data{Path: large, Size: maxFile}}, f.node)
	if e := bothy.AsError(err); err == nil || e.Code != bothy.CodeTooLarge || e.Hint == "" {
		t.Errorf("more than 512 MB: %v", err)
	}
	f = finder{ctx: t.Context(), seen: map[*tree.Node]bool{}, found: make([]Package, maxPackages)}
	err = f.read("x", &tree.Node{Data: tree.Text(strings.Repeat("Package: x\n\n", 10))}, f.debian)
	if bothy.ErrorCode(err) != bothy.CodeTooLarge || len(f.found) > maxPackages+1 {
		t.Errorf("more than %d packages: %v", maxPackages, err)
	}
}

// FuzzPackages looks for descriptions that take much memory, or a panic.
func FuzzPackages(f *testing.F) {
	f.Add("Package: bash\nStatus: install ok installed\nVersion: 5\nDescription: a\n b\n\n: \n", uint8(0))
	f.Add("Name: x\r\nVersion: 1\r\nLicense: a\r\n b\r\n", uint8(1))
	f.Add(`{"name":"x","version":"1","license":{"a":[[[[]]]]}}`, uint8(2))
	f.Add("ID=debian\nVERSION_ID=12\n", uint8(3))
	names := []string{"var/lib/dpkg/status", "a.dist-info/METADATA", "node_modules/a/package.json", "etc/os-release"}
	f.Fuzz(func(t *testing.T, text string, kind uint8) {
		files := tree.New(day)
		put(t, files, names[kind%4], &tree.Node{Mode: unix.S_IFREG, Data: tree.Text(text)})
		list, err := Packages(t.Context(), files, nil)
		if err != nil {
			t.Error(err)
		}
		for _, p := range list {
			if p.Name == "" || len(p.Name)+len(p.Version)+len(p.Arch)+len(p.License) > 4*maxField {
				t.Errorf("%q", p)
			}
			_ = p.URL()
		}
	})
}
