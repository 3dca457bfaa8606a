package layers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInputHasLimits fails if a package that is fed from outside decodes without limits.
func TestInputHasLimits(t *testing.T) {
	for _, folder := range fed {
		files, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", folder, len(files), err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			src, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			wrong, err := Unbounded(strings.TrimPrefix(name, "../../"), src)
			if err != nil {
				t.Error(err)
			}
			for _, w := range wrong {
				t.Error(w)
			}
		}
	}
}

func TestInputWithoutLimitsIsFound(t *testing.T) {
	const src = `package x
import (
	"compress/gzip"
	z "github.com/klauspost/compress/zstd"
	"io"
)
func f(r io.Reader) {
	io.ReadAll(r)
	io.ReadAll(r.(io.Reader))
	io.ReadAll(io.LimitReader(r, 5))
	io.ReadAll(bounded.Reader(ctx, r, 5))
	bounded.ReadAll(ctx, r, 5)
	tar.NewReader(r)
	json.NewDecoder(r)
	json.NewEncoder(w)
	tar.NewWriter(w)
}
`
	wrong, err := Unbounded("x.go", src)
	if err != nil || len(wrong) != 6 {
		t.Errorf("%v: %q", err, wrong)
	}
	const inside = "package build\nfunc f() { bounded.Decompress(ctx, r, 5) }\n"
	for name, want := range map[string]int{"template/build/x.go": 1, "template/apart/x.go": 0} {
		if wrong, err := Unbounded(name, inside); err != nil || len(wrong) != want {
			t.Errorf("%s: %v: %q", name, err, wrong)
		}
	}
}
