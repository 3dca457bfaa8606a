package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
)

// fed are folders whose packages decode what tenants, sandboxes and other servers send. They do
// so with internal/bounded.
var fed = []string{"agents", "e2b", "gateway", "openai", "template", "template/apart", "template/build", "template/sbom", "template/tree", "access/vault", "webhook"}

// excused are what these folders may use in spite of it, each with the reason.
var excused = map[string]string{
	"agents/wire.go json.NewDecoder":                        "it reads a page event by event, and limits each",
	"template/node.go archive/zip":                          "the checksum of the only archive is in a lock file",
	"template/python.go bounded.Decompress":                 "the bundle is part of this program's build",
	"template/export.go github.com/klauspost/compress/zstd": "it only compresses",
}

// unbounded are decoders whose output or memory has no limit.
var unbounded = []string{
	"archive/zip", "compress/bzip2", "compress/flate", "compress/gzip", "compress/lzw", "compress/zlib",
	"github.com/klauspost/compress/zstd", "github.com/ulikunitz/xz", "github.com/ulikunitz/xz/lzma",
}

// limiting are functions whose result can be read as a whole.
var limiting = []string{"io.LimitReader", "bounded.Reader", "bounded.Gunzip", "http.MaxBytesReader"}

// instead are functions without limits, and what has them.
var instead = map[string]string{"tar.NewReader": "bounded.Tar", "json.NewDecoder": "bounded.JSON", "io.ReadAll": "bounded.ReadAll"}

// insteadIn are functions that parse in the server's process, in folders that have what parses apart
// from it.
var insteadIn = map[string]map[string]string{
	"template":       {"bounded.Decompress": "apart.Decompress", "filetree.List": "apart.List"},
	"template/build": {"bounded.Decompress": "apart.Decompress", "tree.List": "apart.List"},
}

// Unbounded returns the imports and calls of decoders without limits in a file, and the calls
// of io.ReadAll for readers that have no limit.
func Unbounded(name string, src any) (wrong []string, err error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	find := func(n ast.Node, what, use string) {
		if excused[name+" "+what] == "" {
			wrong = append(wrong, fmt.Sprintf("%v: %s has no limits here: use %s", fset.Position(n.Pos()), what, use))
		}
	}
	for _, i := range f.Imports {
		if imported, _ := strconv.Unquote(i.Path.Value); slices.Contains(unbounded, imported) {
			find(i, imported, "internal/bounded")
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && instead[called(call)] != "" && !limited(call) {
			find(call, called(call), instead[called(call)])
		}
		if call, ok := n.(*ast.CallExpr); ok && insteadIn[path.Dir(name)][called(call)] != "" {
			find(call, called(call), insteadIn[path.Dir(name)][called(call)])
		}
		return true
	})
	return wrong, nil
}

// limited reports whether a call reads all of what has a limit.
func limited(call *ast.CallExpr) bool {
	if called(call) != "io.ReadAll" || len(call.Args) != 1 {
		return false
	}
	from, ok := call.Args[0].(*ast.CallExpr)
	return ok && slices.Contains(limiting, called(from))
}

// called is the name of a function that is called, with its package.
func called(call *ast.CallExpr) string {
	if s, ok := call.Fun.(*ast.SelectorExpr); ok {
		if pkg, ok := s.X.(*ast.Ident); ok {
			return pkg.Name + "." + s.Sel.Name
		}
	}
	return ""
}
