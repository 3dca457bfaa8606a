// Package mcp is the API for agents: the Model Context Protocol, over HTTP next to the REST API,
// and over stdin and stdout. Its tools call the same services as the other APIs.
package mcp

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
)

// Services are the services behind the tools. All of them except Recorder are
// required.
type Services struct {
	Sandboxes bothy.SandboxService
	Exec      bothy.ExecService
	Code      bothy.CodeService
	Files     bothy.FileService
	Snapshots bothy.SnapshotService
	Limits    bothy.LimitsService
	Templates bothy.TemplateService
	Builder   bothy.TemplateBuilder
	Capturer  bothy.TemplateCapturer
	// Recorder records the audit. Optional: if the services are those of a remote server, that
	// one records.
	Recorder bothy.AuditRecorder
	// SessionID generates session names for clients of the older revisions. Optional.
	SessionID func() string
}

const instructions = `Bothy gives you disposable Linux computers, called sandboxes. Create one, run
commands and code in it, read and write its files, and terminate it when you are done.
Nothing in a sandbox can harm its host. The network is off unless you ask for it.
A sandbox ends by itself when its time is up; pause it to keep its memory and files.
Commands start in /workspace as an ordinary user with passwordless sudo.`

// New makes a server with all tools and resources. version is the program's.
func New(services Services, version string, log *slog.Logger) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "bothy", Title: "Bothy sandboxes", Version: version}, &mcp.ServerOptions{
		GetSessionID: services.SessionID,
		Instructions: instructions,
		Logger:       log,
		// The list of tools never changes, and nothing is logged to clients.
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}, Resources: &mcp.ResourceCapabilities{}},
	})
	t := tools{Services: services, server: s, looks: map[string]bool{}, schemas: map[string]*jsonschema.Schema{}}
	s.AddReceivingMiddleware(withCaller, renamed, t.recorded, t.checked)
	t.addSandboxes()
	t.addRun()
	t.addFiles()
	t.addSnapshots()
	t.addTemplates()
	t.addResources()
	return s
}

// ServeStdio serves one client on stdin and stdout until it hangs up or ctx ends.
func ServeStdio(ctx context.Context, s *mcp.Server) error {
	return Serve(ctx, s, &mcp.StdioTransport{})
}

// Serve serves one client until it leaves or ctx ends, and all its calls with it.
func Serve(ctx context.Context, s *mcp.Server, t mcp.Transport) error {
	s.AddReceivingMiddleware(endingWith(ctx))
	return s.Run(ctx, t)
}

// endingWith ends all calls with ctx. Run waits for them, but their own contexts depend only on
// the client.
func endingWith(ctx context.Context) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(call context.Context, method string, req mcp.Request) (mcp.Result, error) {
			call, cancel := context.WithCancel(call)
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			return next(call, method, req)
		}
	}
}

// withCaller puts the owner of the request's key into the context for the services.
func withCaller(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if x := req.GetExtra(); x != nil && x.TokenInfo != nil {
			if c, ok := x.TokenInfo.Extra[callerKey].(*bothy.Caller); ok {
				ctx = bothy.WithCaller(ctx, c)
			}
			if o, ok := x.TokenInfo.Extra[originKey].(bothy.Origin); ok {
				ctx = bothy.WithOrigin(ctx, o)
			}
			// In the revisions with sessions, a call would outlive its HTTP request. Then nobody
			// could receive its answer.
			if request, ok := x.TokenInfo.Extra[requestKey].(context.Context); ok && method == "tools/call" {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				defer cancel()
				defer context.AfterFunc(request, cancel)()
				ctx = bothy.WithElsewhereOf(bothy.WithMemoryOf(ctx, request), request)
			}
		}
		return next(ctx, method, req)
	}
}

type tools struct {
	Services
	server *mcp.Server
	// looks are the tools that change nothing.
	looks map[string]bool
	// schemas are those of the tools' arguments.
	schemas map[string]*jsonschema.Schema
}

// kind is the kind of a tool's effect.
type kind int

const (
	reads    kind = iota
	adds          // creates something new each time it is called
	sets          // changes something; repeating it has no further effect
	destroys      // may delete something
	runs          // runs the caller's code
)

func (k kind) annotations(title string) *mcp.ToolAnnotations {
	yes, no := true, false
	a := &mcp.ToolAnnotations{Title: title, DestructiveHint: &no, OpenWorldHint: &no}
	switch k {
	case reads:
		a.ReadOnlyHint, a.IdempotentHint = true, true
	case sets:
		a.IdempotentHint = true
	case destroys:
		a.DestructiveHint, a.IdempotentHint = &yes, true
	case runs:
		a.DestructiveHint, a.OpenWorldHint = &yes, &yes
	}
	return a
}

// handler does the work of a tool. The first result is content for the reader that is more than
// the JSON of the second; nil means only that.
type handler[In, Out any] func(ctx context.Context, req *mcp.CallToolRequest, in In) ([]mcp.Content, Out, error)

func add[In, Out any](t tools, k kind, name, title, description string, h handler[In, Out]) {
	t.looks[name], t.schemas[name] = k == reads, schemaOf[In]()
	tool := &mcp.Tool{
		Name: name, Title: title, Description: description, Annotations: k.annotations(title),
		InputSchema: t.schemas[name], OutputSchema: schemaOf[Out](),
	}
	mcp.AddTool(t.server, tool, func(ctx context.Context, req *mcp.CallToolRequest, in In) (*mcp.CallToolResult, Out, error) {
		content, out, err := h(ctx, req, in)
		note(ctx, out, err)
		if err == nil {
			content, err = fitted(content, &out)
		}
		if err != nil {
			return nil, out, failure(err)
		}
		if content == nil {
			return nil, out, nil
		}
		return &mcp.CallToolResult{Content: content}, out, nil
	})
}

// failure is the caller's view of an error: what is wrong, what to do, and the code that
// programs match on.
func failure(err error) error {
	e := bothy.AsError(err)
	text := fmt.Sprintf("%s: %s", e.Code, e.Detail)
	if e.Hint != "" {
		text += "\n" + inTools(e.Hint)
	}
	return fmt.Errorf("%s", text)
}

// networkSchema is that of bothy.Network: a mode, or an object.
var networkSchema = &jsonschema.Schema{
	Description: "What the sandbox may reach: off (nothing), restricted (package registries, GitHub, LLM APIs), open (the internet), or an object that names its own",
	AnyOf: []*jsonschema.Schema{
		{Type: "string", Enum: []any{"off", "restricted", "open"}},
		{
			Type: "object",
			Properties: map[string]*jsonschema.Schema{
				"mode":          {Type: "string", Enum: []any{"off", "restricted", "open"}, Description: "restricted unless said otherwise"},
				"presets":       {Type: "array", Items: &jsonschema.Schema{Type: "string"}, Description: "pypi, npm, go, github, debian, crates, llm"},
				"allow_domains": {Type: "array", Items: &jsonschema.Schema{Type: "string"}, Description: "Such as api.example.com or *.example.org"},
				"allow_cidrs":   {Type: "array", Items: &jsonschema.Schema{Type: "string"}, Description: "Such as 192.0.2.0/24"},
				"allow_ports":   {Type: "array", Items: &jsonschema.Schema{Type: "integer", Minimum: new(float64(1)), Maximum: new(float64(65535))}},
				"deny_cidrs":    {Type: "array", Items: &jsonschema.Schema{Type: "string"}, Description: "Closed in mode open, but for what the other lists allow"},
			},
			AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}},
		},
	},
}

func schemaOf[T any]() *jsonschema.Schema {
	s, err := jsonschema.For[T](&jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[bothy.Network](): networkSchema,
	}})
	if err != nil {
		panic(err) // a type of ours that has no schema
	}
	// To the library a pointer may be nil; here it may not.
	s.Type, s.Types = "object", nil
	for _, p := range s.Properties {
		if slices.Equal(p.Types, []string{"null"}) { // a schema of ours without a type, behind a pointer
			p.Types = nil
		}
	}
	if s.Properties == nil { // of an object without fields; some clients want it
		s.Properties = map[string]*jsonschema.Schema{}
	}
	return s
}
