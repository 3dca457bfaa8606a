package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Backwards returns the uses between files of one package that run against the order of files
// with the fewest such uses: a file should come before those that it uses. It goes by names, and
// ignores the type whose methods fill the package, which all files use.
func Backwards(folder, center string) (uses int, backwards []string, err error) {
	files, err := parseFolder(folder)
	if err != nil {
		return 0, nil, err
	}
	declaredIn := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, d := range declared(files[name]) {
			if d != center && d != "_" {
				declaredIn[d] = name
			}
		}
	}
	arrows := map[Arrow]string{}
	for name, f := range files {
		use := func(id, key string) {
			if to := declaredIn[key]; to != "" && to != name {
				arrows[Arrow{name, to}] = id
			}
		}
		plain := map[*ast.Ident]bool{}
		ast.Inspect(f, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.Field: // a name of its own
				for _, id := range x.Names {
					plain[id] = true
				}
			case *ast.KeyValueExpr: // a field
				if key, ok := x.Key.(*ast.Ident); ok {
					plain[key] = true
				}
			case *ast.SelectorExpr:
				plain[x.Sel] = true
				// Methods are called on the center as s, or as x.s by types that wrap it.
				if text := fmt.Sprint(x.X); text == "s" || strings.HasSuffix(text, " s}") {
					use(x.Sel.Name, "."+x.Sel.Name)
				}
			case *ast.Ident:
				if !plain[x] {
					use(x.Name, x.Name)
				}
			}
			return true
		})
	}
	names := slices.Sorted(maps.Keys(files))
	for i := range names { // one start may end where no single move helps
		found := against(order(slices.Concat(names[i:], names[:i]), arrows), arrows)
		if i == 0 || len(found) < len(backwards) {
			backwards = found
		}
	}
	return len(arrows), backwards, nil
}

// against lists the arrows that run against an order.
func against(names []string, arrows map[Arrow]string) (list []string) {
	for a, use := range arrows {
		if slices.Index(names, a.From) > slices.Index(names, a.To) {
			list = append(list, fmt.Sprintf("%v (%s)", a, use))
		}
	}
	slices.Sort(list)
	return list
}

func parseFolder(folder string) (map[string]*ast.File, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	files, fset := map[string]*ast.File{}, token.NewFileSet()
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			if files[name], err = parser.ParseFile(fset, filepath.Join(folder, name), nil, parser.SkipObjectResolution); err != nil {
				return nil, err
			}
		}
	}
	return files, nil
}

// declared are the names that a file declares in its package; those of methods begin with a dot.
func declared(f *ast.File) (names []string) {
	for _, d := range f.Decls {
		switch x := d.(type) {
		case *ast.FuncDecl:
			if x.Recv != nil {
				names = append(names, "."+x.Name.Name)
			} else {
				names = append(names, x.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range x.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, s.Name.Name)
				case *ast.ValueSpec:
					for _, id := range s.Names {
						names = append(names, id.Name)
					}
				}
			}
		}
	}
	return names
}

// order moves each file to where the fewest of its own arrows run backwards, until none moves
// any more.
func order(names []string, arrows map[Arrow]string) []string {
	for moved := true; moved; {
		moved = false
		for _, name := range slices.Clone(names) {
			i := slices.Index(names, name)
			rest := slices.Delete(slices.Clone(names), i, i+1)
			cost := 0 // at the very beginning every use of it runs backwards
			for _, other := range rest {
				cost += count(arrows, Arrow{other, name})
			}
			best, least, now := 0, cost, cost
			for j, other := range rest {
				cost += count(arrows, Arrow{name, other}) - count(arrows, Arrow{other, name})
				if cost < least {
					best, least = j+1, cost
				}
				if j+1 == i {
					now = cost
				}
			}
			if least < now {
				names, moved = slices.Insert(rest, best, name), true
			}
		}
	}
	return names
}

func count(arrows map[Arrow]string, a Arrow) int {
	if arrows[a] == "" {
		return 0
	}
	return 1
}
