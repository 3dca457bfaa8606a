package api

import (
	"encoding/json"
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"go.yaml.in/yaml/v3"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/openapi"
	"github.com/bothy-dev/bothy/api/problem"
	"github.com/bothy-dev/bothy/api/rest"
)

var update = flag.Bool("update", false, "write openapi.json")

// complete is a server with every service. The services are never called.
func complete(t *testing.T) *Server {
	t.Helper()
	s := New(everything(apitest.New(), apitest.NewTokens(), &apitest.Answers{}, nil), Config{})
	if _, _, err := s.registry.Document(); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDocumentFile(t *testing.T) {
	const name = "openapi.json"
	asJSON, asYAML, _ := complete(t).registry.Document()
	if *update {
		if err := os.WriteFile(name, asJSON, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != string(asJSON) {
		t.Errorf("%s is not what the code says; run go generate ./api", name)
	}
	var one, other any // JSON is YAML too
	if err := errors.Join(yaml.Unmarshal(asJSON, &one), yaml.Unmarshal(asYAML, &other)); err != nil || !reflect.DeepEqual(one, other) {
		t.Errorf("the document as YAML says something else: %v", err)
	}
}

// operations calls fn for every operation in the document.
func operations(s *Server, fn func(method, path string, op *huma.Operation)) {
	for path, item := range s.registry.OpenAPI().Paths {
		for method, op := range map[string]*huma.Operation{
			"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete,
		} {
			if op != nil {
				fn(method, path, op)
			}
		}
	}
}

func TestEveryOperationIsDocumented(t *testing.T) {
	s := complete(t)
	n := 0
	operations(s, func(method, path string, op *huma.Operation) {
		n++
		where := method + " " + path
		if op.OperationID == "" || op.Summary == "" || len(op.Tags) != 1 || op.Extensions["x-scope"] == "" {
			t.Errorf("%s: id %q, summary %q, tags %v, scope %v", where, op.OperationID, op.Summary, op.Tags, op.Extensions["x-scope"])
		}
		if op.Responses["default"] == nil {
			t.Errorf("%s: its failures are not documented", where)
		}
		if len(op.Responses) < 2 {
			t.Errorf("%s: its success is not documented", where)
		}
		documented := map[string]bool{}
		for _, p := range op.Parameters {
			documented[p.In+" "+p.Name] = true
			if p.Ref == "" && p.Description == "" {
				t.Errorf("%s: parameter %s has no description", where, p.Name)
			}
		}
		for _, part := range strings.Split(path, "/") {
			if name, ok := strings.CutPrefix(part, "{"); ok && !documented["path "+strings.TrimSuffix(name, "}")] {
				t.Errorf("%s: the parameter %s is not read", where, part)
			}
		}
	})
	if n != len(s.registry.Operations()) || n < 40 {
		t.Errorf("%d operations in the document, %d registered", n, len(s.registry.Operations()))
	}
}

func TestEveryFieldIsDescribed(t *testing.T) {
	s := complete(t)
	schemas := s.registry.OpenAPI().Components.Schemas.Map()
	for name, schema := range schemas {
		for field, p := range schema.Properties {
			if p.Description == "" && p.Ref == "" {
				t.Errorf("%s.%s has no description: add it to api/openapi/fields.go", name, field)
			}
		}
	}
	for name, fields := range openapi.Descriptions {
		for field := range fields {
			if schemas[name] == nil || schemas[name].Properties[field] == nil {
				t.Errorf("fields.go describes %s.%s, which is not there", name, field)
			}
		}
	}
}

// Every code of the root package has a status, and the document lists it.
func TestEveryCodeHasAStatus(t *testing.T) {
	parsed, err := parser.ParseFile(token.NewFileSet(), "../error.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := v.Type.(*ast.Ident); ok && id.Name == "Code" {
			text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			codes = append(codes, text)
		}
		return true
	})
	if len(codes) < 35 {
		t.Fatalf("found only %v", codes)
	}
	code := complete(t).registry.OpenAPI().Components.Schemas.Map()["Problem"].Properties["code"]
	for _, c := range codes {
		if problem.Statuses[bothy.Code(c)] == 0 {
			t.Errorf("the code %s has no status", c)
		}
		if !slices.Contains(code.Enum, any(c)) {
			t.Errorf("the document does not list the code %s", c)
		}
	}
	if len(problem.Statuses) != len(codes) {
		t.Errorf("%d codes, %d statuses", len(codes), len(problem.Statuses))
	}
}

func TestDocumentOverHTTP(t *testing.T) {
	f := start(t).as("")
	res := f.ok(200, f.do("GET", "/openapi.json", nil))
	var doc struct {
		OpenAPI    string
		Paths      map[string]map[string]any
		Components struct{ Schemas map[string]map[string]any }
	}
	if err := json.Unmarshal([]byte(res.body), &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" || doc.Paths["/v1/sandboxes/{id}/exec"]["post"] == nil {
		t.Fatalf("%.300s", res.body)
	}
	if res := f.ok(200, f.do("GET", "/openapi.yaml", nil)); !strings.Contains(res.body, "/v1/sandboxes:") {
		t.Fatalf("%.300s", res.body)
	}
	// Every reference leads somewhere.
	for _, part := range strings.Split(res.body, `"$ref": "#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if doc.Components.Schemas[name] == nil {
			t.Errorf("nothing is called %s", name)
		}
	}
}

func TestDocsPageLoadsNothingFromElsewhere(t *testing.T) {
	f := start(t).as("")
	for _, path := range []string{"/docs", "/docs/docs.css", "/docs/docs.js"} {
		res := f.ok(200, f.do("GET", path, nil))
		for _, no := range []string{"http://", "https://", "@import", "//cdn", "innerHTML", "style=", "<style", "<script>", "onclick=\""} {
			if strings.Contains(res.body, no) {
				t.Errorf("%s has %q", path, no)
			}
		}
		h := res.Header
		if p := h.Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'; script-src 'self'; style-src 'self';") ||
			!strings.Contains(p, "frame-ancestors 'none'") || strings.Contains(p, "unsafe") {
			t.Errorf("%s: policy %q", path, p)
		}
		if h.Get("X-Frame-Options") != "DENY" || h.Get("Cross-Origin-Opener-Policy") != "same-origin" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", path, h)
		}
	}
}

// Every operation has three examples, which send what it accepts.
func TestOperationsHaveExamples(t *testing.T) {
	s := complete(t)
	if _, _, err := s.registry.Document(); err != nil {
		t.Fatal(err)
	}
	o := s.registry.OpenAPI()
	tags := map[string]bool{}
	for _, tag := range o.Tags {
		tags[tag.Name] = true
	}
	for path, item := range o.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			if len(op.Tags) != 1 || !tags[op.Tags[0]] {
				t.Errorf("%s is below %v, which the document does not list", op.OperationID, op.Tags)
			}
			text, err := json.Marshal(op.Extensions["x-codeSamples"])
			if err != nil {
				t.Fatal(err)
			}
			var samples []struct{ Label, Source string }
			if err := json.Unmarshal(text, &samples); err != nil {
				t.Fatal(err)
			}
			if len(samples) != 3 || samples[0].Label != "curl" || samples[1].Label != "Python" || samples[2].Label != "JavaScript" {
				t.Errorf("%s: examples %+v; api/openapi/samples.yaml needs its own", op.OperationID, samples)
				continue
			}
			curl := samples[0].Source
			if strings.ContainsAny(curl[:strings.Index(curl, "\n")], "{}") {
				t.Errorf("%s: the address of %s has a parameter that is not filled", path, curl)
			}
			if op.RequestBody == nil || op.RequestBody.Content["application/json"] == nil {
				continue
			}
			m := op.RequestBody.Content["application/json"]
			raw, _ := m.Example.(json.RawMessage)
			var body any
			if err := json.Unmarshal(raw, &body); err != nil {
				t.Errorf("%s: its example %q: %v", op.OperationID, raw, err)
				continue
			}
			if !strings.Contains(curl, string(raw)) {
				t.Errorf("%s: curl does not send %s", op.OperationID, raw)
			}
			var res huma.ValidateResult
			huma.Validate(o.Components.Schemas, m.Schema, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, body, &res)
			if len(res.Errors) > 0 {
				t.Errorf("%s: its example %s: %v", op.OperationID, raw, res.Errors)
			}
		}
	}
}

func TestMissingServicesHaveNoRoutes(t *testing.T) {
	s := New(Services{Services: rest.Services{Tokens: apitest.NewTokens()}}, Config{})
	for _, c := range s.registry.Operations() {
		if c.Tag != "Tokens" {
			t.Errorf("%s %s is there without its service", c.Method, c.Path)
		}
	}
	if _, _, err := s.registry.Document(); err != nil {
		t.Fatal(err)
	}
	if tags := s.registry.OpenAPI().Tags; len(tags) != 1 || tags[0].Name != "Tokens" {
		t.Errorf("tags %v", tags)
	}
}

// A stream that fails after it has begun ends with a problem as its last event, as its documentation
// says.
func TestStreamsDocumentTheirFailures(t *testing.T) {
	n := 0
	for path, item := range complete(t).registry.OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post} {
			if op == nil {
				continue
			}
			for _, res := range op.Responses {
				m := res.Content[middleware.EventsType]
				if m == nil {
					continue
				}
				n++
				if len(m.Schema.AnyOf) != 2 || m.Schema.AnyOf[1].Ref != "#/components/schemas/Problem" {
					t.Errorf("%s does not say how it fails: %+v", path, m.Schema)
				}
			}
		}
	}
	if n < 5 {
		t.Errorf("only %d streams were seen", n)
	}
}

// If the document cannot be made, every request fails with an error, never with an empty document.
func TestDocumentThatCannotBeMade(t *testing.T) {
	f := start(t)
	f.registry.OpenAPI().Extensions = map[string]any{"x-broken": func() {}}
	for range 2 {
		f.failed(bothy.CodeInternal, f.do("GET", "/openapi.json", nil))
		f.failed(bothy.CodeInternal, f.do("GET", "/openapi.yaml", nil))
	}
}
