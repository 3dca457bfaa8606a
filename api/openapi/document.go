package openapi

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/middleware"
	"github.com/bothy-dev/bothy/api/problem"
)

// document is the OpenAPI document, made when it is first requested. A failure is kept as well:
// a second attempt would have the same result.
type document struct {
	once       sync.Once
	json, yaml []byte
	err        error
}

//go:embed docs.html docs.css docs.js
var docs embed.FS

// docsPolicy lets the page run only this server's script and connect only to this server.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func humaConfig(version, address string) huma.Config {
	registry := huma.NewMapRegistry("#/components/schemas/", schemaName)
	registerAliases(registry)
	if version == "" {
		version = "0"
	}
	format := huma.DefaultJSONFormat
	format.Unmarshal = UnmarshalUTF8
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "Bothy", Version: version,
				License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
				Description: "Disposable, isolated Linux machines. Every call takes the header `Authorization: Bearer KEY`. " +
					"Times are RFC 3339 in UTC, durations end in `_seconds` or `_ms`, sizes in `_mb` (MiB) or `_bytes`.",
			},
			Servers: []*huma.Server{{URL: address, Description: "The default address of `bothy up`."}},
			Tags: []*huma.Tag{
				{Name: "Sandboxes", Description: "The life of sandboxes."},
				{Name: "Commands", Description: "Running commands, processes and terminals."},
				{Name: "Code", Description: "Running code in a kernel that keeps its state."},
				{Name: "Files", Description: "Moving files in and out."},
				{Name: "Snapshots", Description: "Pausing, copying and rolling back."},
				{Name: "Network", Description: "Reaching servers in sandboxes, and what sandboxes tried to reach."},
				{Name: "Templates", Description: "What sandboxes start from."},
				{Name: "Events", Description: "What happened."},
				{Name: "Agents", Description: "Sandboxes for managed agents."},
				{Name: "Webhooks", Description: "Events sent to a URL."},
				{Name: "Usage", Description: "Usage and what it costs."},
				{Name: "Limits", Description: "What the project may use, and what the host has."},
				{Name: "Hosts", Description: "The servers that share a database."},
				{Name: "Projects", Description: "Projects, their plans and budgets."},
				{Name: "Tokens", Description: "Who may do what."},
			},
			Components: &huma.Components{
				Schemas:         registry,
				SecuritySchemes: map[string]*huma.SecurityScheme{"key": {Type: "http", Scheme: "bearer", Description: "A key created with `bothy token create`."}},
				Responses:       map[string]*huma.Response{"Problem": problemResponse()},
				Parameters: map[string]*huma.Param{"IdempotencyKey": {
					Name: middleware.IdempotencyKey, In: "header", Schema: &huma.Schema{Type: "string", Extensions: map[string]any{"maxLength": middleware.MaxKeyLength}},
					Description: "A value of your choosing, such as a UUID. A repetition with the same key within a day gets the answer " +
						"of the first success, with `Idempotency-Replayed: true`, and does nothing more. What was refused may be repeated. A command, code, a fork " +
						"or input for a process that was cut off, by a pause or by the end of its server, is never executed a second time: " +
						"its repetition is answered with `outcome_unknown`.",
				}},
			},
		},
		Formats:       map[string]huma.Format{"application/json": format, "json": format},
		DefaultFormat: "application/json",
	}
}

func problemResponse() *huma.Response {
	return &huma.Response{
		Description: "It failed. `code` is stable; `detail` says what is wrong, and `hint` what to do.",
		Headers: map[string]*huma.Param{
			"Retry-After": {Description: "After how many seconds a retry can succeed.", Schema: &huma.Schema{Type: "integer"}},
		},
		Content: map[string]*huma.MediaType{problem.ContentType: {Schema: &huma.Schema{Ref: "#/components/schemas/Problem"}}},
	}
}

// schemaName names lists after their items.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	if rest, ok := strings.CutPrefix(name, "Items"); ok {
		return rest + "List"
	}
	if rest, ok := strings.CutPrefix(name, "Page"); ok {
		return rest + "Page"
	}
	return name
}

// Finish adds what the registrations could not, and the routes that serve the document.
func (s *Registry) Finish() {
	o := s.huma.OpenAPI()
	s.Schema(reflect.TypeFor[problem.Problem]())
	finishSchemas(o.Components.Schemas.Map())
	documentCodes(o.Components.Schemas.Map()["Problem"])
	documentSocket(o.Paths)
	if err := addSamples(o.Paths); err != nil {
		panic(err) // the embedded file is not YAML
	}
	used := map[string]bool{}
	for _, c := range s.operations {
		used[c.Tag] = true
	}
	o.Tags = slices.DeleteFunc(o.Tags, func(t *huma.Tag) bool { return !used[t.Name] })

	s.mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, r *http.Request) {
		asJSON, _, err := s.Document()
		s.serveDocument(w, r, "application/openapi+json", asJSON, err)
	})
	s.mux.HandleFunc("GET /openapi.yaml", func(w http.ResponseWriter, r *http.Request) {
		_, asYAML, err := s.Document()
		s.serveDocument(w, r, "application/openapi+yaml", asYAML, err)
	})
	s.mux.HandleFunc("GET /docs", serveDocs("docs.html", "text/html; charset=utf-8"))
	s.mux.HandleFunc("GET /docs/docs.css", serveDocs("docs.css", "text/css; charset=utf-8"))
	s.mux.HandleFunc("GET /docs/docs.js", serveDocs("docs.js", "text/javascript; charset=utf-8"))
}

// serveDocs serves a file of the page. The page can act with a visitor's login, so no other page
// may frame it or hold a reference to its window.
func serveDocs(name, contentType string) http.HandlerFunc {
	body, err := docs.ReadFile(name)
	if err != nil {
		panic(err) // a wrong name in this package
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", contentType)
		h.Set("Content-Security-Policy", docsPolicy)
		h.Set("Cache-Control", "no-cache")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		_, _ = w.Write(body)
	}
}

// documentSocket removes the body that an upgrade does not have.
func documentSocket(paths map[string]*huma.PathItem) {
	for _, p := range paths {
		if p.Get != nil && p.Get.Responses["101"] != nil {
			p.Get.Responses["101"].Content = nil
		}
	}
}

// documentCodes lists the codes with their statuses.
func documentCodes(schema *huma.Schema) {
	codes := make([]string, 0, len(problem.Statuses))
	for c := range problem.Statuses {
		codes = append(codes, string(c))
	}
	slices.SortFunc(codes, func(a, b string) int {
		if d := problem.Statuses[bothy.Code(a)] - problem.Statuses[bothy.Code(b)]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	code := schema.Properties["code"]
	var table strings.Builder
	byCode := map[string]int{}
	for _, c := range codes {
		code.Enum = append(code.Enum, c)
		byCode[c] = problem.Statuses[bothy.Code(c)]
		fmt.Fprintf(&table, "\n- `%s`: %d", c, byCode[c])
	}
	code.Description = "The kind of the failure, and the status that it comes with:\n" + table.String()
	code.Extensions = map[string]any{"x-status": byCode}
}

func (s *Registry) serveDocument(w http.ResponseWriter, r *http.Request, contentType string, text []byte, err error) {
	if err != nil {
		s.chain.Fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write(text)
}

// Document is the OpenAPI document in both its forms.
func (s *Registry) Document() (asJSON, asYAML []byte, err error) {
	d := &s.document
	d.once.Do(func() { d.json, d.yaml, d.err = render(s.OpenAPI()) })
	return d.json, d.yaml, d.err
}

func render(o *huma.OpenAPI) (asJSON, asYAML []byte, err error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return nil, nil, err
	}
	b.WriteByte('\n')
	asYAML, err = o.YAML()
	return b.Bytes(), asYAML, err
}

// UnmarshalUTF8 decodes only valid UTF-8. The decoder itself would replace invalid bytes: a file
// would get another name than was meant.
func UnmarshalUTF8(b []byte, v any) error {
	if !utf8.Valid(b) {
		return errors.New("it is not UTF-8")
	}
	return json.Unmarshal(b, v)
}
