package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
)

// fed are folders whose packages decode what tenants, sandboxes and other servers send. They do
// so with internal/bounded.
var fed = []string{"template/sbom", "template/tree"}

// unbounded are decoders whose output or memory has no limit.
var unbounded = []string{
	"archive/zip", "compress/bzip2", "compress/flate", "compress/gzip", "compress/lzw", "compress/zlib",
	"github.com/klauspost/compress/zstd", "github.com/ulikunitz/xz", "github.com/ulikunitz/xz/lzma",
}

// limiting are functions whose result can be read as a whole.
var limiting = []string{"io.LimitReader", "bounded.Reader", "http.MaxBytesReader"}

// Unbounded returns the imports and calls of decoders without limits in a file, and the calls
// of io.ReadAll for readers that have no limit.
func Unbounded(name string, src any) (wrong []string, err error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, i := range f.Imports {
		if path, _ := strconv.Unquote(i.Path.Value); slices.Contains(unbounded, path) {
			wrong = append(wrong, fmt.Sprintf("%v: %s has no limits: use internal/bounded", fset.Position(i.Pos()), path))
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if ok && called(call) == "tar.NewReader" {
			wrong = append(wrong, fmt.Sprintf("%v: tar.NewReader has no limits: use bounded.Tar", fset.Position(call.Pos())))
		}
		if !ok || called(call) != "io.ReadAll" || len(call.Args) != 1 {
			return true
		}
		if from, ok := call.Args[0].(*ast.CallExpr); !ok || !slices.Contains(limiting, called(from)) {
			wrong = append(wrong, fmt.Sprintf("%v: io.ReadAll of what may have no limit: use bounded.ReadAll", fset.Position(call.Pos())))
		}
		return true
	})
	return wrong, nil
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
