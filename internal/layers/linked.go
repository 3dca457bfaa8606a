package layers

import (
	"path"
	"strings"
)

// unlinked are import paths that no installed program may contain, including everything below
// them. Those of this module are relative to it.
var unlinked = []string{
	"testing", "net/http/httptest", // they add flags, and a server that trusts everybody
	"github.com/google/go-cmp", "github.com/letsencrypt/challtestsrv", "github.com/letsencrypt/pebble", "github.com/rogpeppe/go-internal",
	"github.com/kluctl/go-embed-python", // cmd/pybundle packs it when Bothy is built
	"bench", "cmd/bothy-bench", "cmd/pybundle", "engine/fake", "examples", "internal/layers", "test",
}

// Linked returns the packages among a program's dependencies that only tests, measurements or
// the build may use. A package whose last element ends in "test", such as enginetest, is always
// one.
func Linked(deps []string) (wrong []string) {
	for _, dep := range deps {
		rel, own := strings.CutPrefix(dep, Module+"/")
		forbidden := own && strings.HasSuffix(path.Base(rel), "test")
		for _, u := range unlinked {
			forbidden = forbidden || rel == u || strings.HasPrefix(rel, u+"/")
		}
		if forbidden {
			wrong = append(wrong, dep)
		}
	}
	return wrong
}
