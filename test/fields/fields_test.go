// Package fields checks that every client can ask for all that the API offers.
package fields

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

const root = "../.."

// without are the fields that a client leaves out on purpose.
var without = map[string]map[string]string{
	"MCP": {
		"secrets":    "what a model sends stays in its context, where a credential must not be",
		"repo_token": "the same",
	},
}

func TestEveryClientHasEveryCreateField(t *testing.T) {
	offered := documented(t, "SandboxCreate")
	clients := map[string]map[string]bool{
		"Go":                   goFields(),
		"MCP":                  mcpFields(t),
		"the command line":     flagFields(t),
		"JavaScript":           javascriptFields(t),
		"Python (async)":       pythonFields(t, "_async"),
		"Python (synchronous)": pythonFields(t, "_sync"),
	}
	for client, have := range clients {
		for field := range offered {
			reason := without[client][field]
			switch {
			case !have[field] && reason == "":
				t.Errorf("%s cannot set %s of a new sandbox: add it, or say in this test why not", client, field)
			case have[field] && reason != "":
				t.Errorf("%s can set %s: remove it from those that it leaves out", client, field)
			}
		}
		for field := range have {
			if !offered[field] {
				t.Errorf("%s sets %s of a new sandbox, which the API does not know", client, field)
			}
		}
	}
}

// TestLacksAreSeen checks that the readers of sources read something.
func TestLacksAreSeen(t *testing.T) {
	if got := keysOf(`create({ "cpu": cpu, "memory_mb": m })`, `"(\w+)":`); len(got) != 2 || !got["memory_mb"] {
		t.Errorf("got %v", got)
	}
	if got := snake("requireAcceleration"); got != "require_acceleration" {
		t.Errorf("got %s", got)
	}
}

// documented is the fields of a schema in openapi.json.
func documented(t *testing.T, schema string) map[string]bool {
	var document struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any
			}
		}
	}
	if err := json.Unmarshal([]byte(read(t, "api/openapi.json")), &document); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for name := range document.Components.Schemas[schema].Properties {
		names[name] = true
	}
	if len(names) < 10 {
		t.Fatalf("openapi.json has %d fields for a new sandbox", len(names))
	}
	return names
}

// wire is the JSON name of each field of the Go type.
func wire() map[string]string {
	names := map[string]string{}
	for f := range reflect.TypeFor[bothy.SandboxCreate]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" { // one for doors alone
			names[f.Name] = name
		}
	}
	return names
}

func goFields() map[string]bool {
	names := map[string]bool{}
	for _, name := range wire() {
		names[name] = true
	}
	return names
}

// mcpFields is what the tool's input takes. That it hands all of it on is the compiler's
// business, where the input is converted to the request as a whole.
func mcpFields(t *testing.T) map[string]bool {
	declared, converted := map[string]bool{}, false
	ast.Inspect(source(t, "mcp/sandboxes.go"), func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			if n.Name.Name != "createIn" {
				return true
			}
			for _, f := range n.Type.(*ast.StructType).Fields.List {
				name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
				if name != "-" {
					declared[name] = true
				}
			}
		case *ast.CallExpr:
			typ, ok := n.Fun.(*ast.SelectorExpr)
			converted = converted || ok && typ.Sel.Name == "SandboxCreate" && len(n.Args) == 1
		}
		return true
	})
	if !converted {
		t.Error("the tool create_sandbox does not convert its input to a bothy.SandboxCreate")
	}
	return declared
}

// flagFields is what the flags of `bothy create` set.
func flagFields(t *testing.T) map[string]bool {
	return handedOn(source(t, "cli/createflags.go"), wire())
}

// handedOn is the fields of bothy.SandboxCreate that a file sets, in a literal or by
// assignment to req.
func handedOn(file *ast.File, wire map[string]string) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if typ, ok := n.Type.(*ast.SelectorExpr); ok && typ.Sel.Name == "SandboxCreate" {
				for _, e := range n.Elts {
					names[wire[e.(*ast.KeyValueExpr).Key.(*ast.Ident).Name]] = true
				}
			}
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if field, ok := left.(*ast.SelectorExpr); ok {
					if of, ok := field.X.(*ast.Ident); ok && of.Name == "req" {
						names[wire[field.Sel.Name]] = true
					}
				}
			}
		}
		return true
	})
	return names
}

func javascriptFields(t *testing.T) map[string]bool {
	names := map[string]bool{}
	for name := range keysOf(between(t, read(t, "js/src/types.ts"), "export interface CreateParams {", "\n}"), `(?m)^  (\w+)\??:`) {
		names[snake(name)] = true
	}
	return names
}

// pythonFields is the keys of the request's body; a parameter without a key, or a key
// without a parameter, is an error of the checkers that the SDK's own tests run.
func pythonFields(t *testing.T, dir string) map[string]bool {
	create := between(t, read(t, "python/bothy/"+dir+"/_sandbox.py"), "def create(", "\n        }\n")
	body := between(t, create+"\n        }\n", "= {\n", "\n        }\n")
	return keysOf(body, `(?m)^            "(\w+)":`)
}

func keysOf(text, pattern string) map[string]bool {
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		names[m[1]] = true
	}
	return names
}

func between(t *testing.T, text, from, to string) string {
	_, rest, ok := strings.Cut(text, from)
	part, _, ended := strings.Cut(rest, to)
	if !ok || !ended {
		t.Fatalf("there is no part from %q to %q", from, to)
	}
	return part
}

func snake(camel string) string {
	return strings.ToLower(regexp.MustCompile(`[A-Z]`).ReplaceAllString(camel, "_$0"))
}

func read(t *testing.T, path string) string {
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func source(t *testing.T, path string) *ast.File {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return file
}
