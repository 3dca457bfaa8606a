package openapi

import (
	_ "embed"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"go.yaml.in/yaml/v3"
)

//go:embed samples.yaml
var samplesText []byte

// A sample describes the examples of an operation.
type sample struct {
	Query  string `yaml:"query"`
	JSON   string `yaml:"json"`
	Curl   string `yaml:"curl"`
	Python string `yaml:"python"`
	JS     string `yaml:"js"`
}

// codeSample is an element of x-codeSamples, which other viewers of OpenAPI show as well.
type codeSample struct {
	Lang   string `json:"lang" yaml:"lang"`
	Label  string `json:"label" yaml:"label"`
	Source string `json:"source" yaml:"source"`
}

// placeholders are the values that the examples use in paths, other than ids.
var placeholders = map[string]string{
	"{name}": "my-template", "{context}": "CONTEXT_ID", "{shell}": "default", "{link}": "LINK_ID", "{host}": "two", "{pid}": "7", "{port}": "8000",
}

// addSamples gives each operation an example in curl, Python and JavaScript.
func addSamples(paths map[string]*huma.PathItem) error {
	var samples map[string]sample
	if err := yaml.Unmarshal(samplesText, &samples); err != nil {
		return err
	}
	for path, item := range paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			x, ok := samples[op.OperationID]
			if !ok { // a test reports that
				continue
			}
			if op.Extensions == nil {
				op.Extensions = map[string]any{}
			}
			op.Extensions["x-codeSamples"] = []codeSample{
				{"Shell", "curl", x.curl(op, path)}, {"Python", "Python", x.python()}, {"JavaScript", "JavaScript", x.js()},
			}
			if x.JSON != "" {
				op.RequestBody.Content["application/json"].Example = json.RawMessage(x.JSON)
			}
		}
	}
	return nil
}

// samplePath fills the parameters of a path.
func samplePath(path string) string {
	for name, value := range placeholders {
		path = strings.ReplaceAll(path, name, value)
	}
	before, _, _ := strings.Cut(path, "/{id}")
	room := strings.TrimPrefix(before, "/v1/")
	one := map[string]string{"sandboxes": "SANDBOX_ID", "templates/builds": "BUILD_ID", "agents": "AGENTS_ID"}[room]
	if one == "" {
		one = strings.ToUpper(strings.TrimSuffix(room, "s")) + "_ID"
	}
	return strings.ReplaceAll(path, "{id}", one)
}

func (x sample) curl(op *huma.Operation, path string) string {
	address := "$BOTHY_URL" + samplePath(path)
	if x.Query != "" {
		address += "?" + x.Query
	}
	parts := []string{`curl "` + address + `"`, `-H "Authorization: Bearer $BOTHY_API_KEY"`}
	switch {
	case op.Responses["101"] != nil:
		parts = append(parts, `--http1.1 -N -i -H 'Connection: Upgrade' -H 'Upgrade: websocket'`,
			`-H 'Sec-WebSocket-Version: 13' -H "Sec-WebSocket-Key: $(head -c 16 /dev/urandom | base64)"`)
	case op.Responses["200"] != nil && len(op.Responses["200"].Content) == 1 && op.Responses["200"].Content["text/event-stream"] != nil:
		parts = append(parts, "-N")
	}
	if x.Curl != "" {
		parts = append(parts, x.Curl)
	} else if op.Method != http.MethodGet {
		parts[0] = strings.Replace(parts[0], "curl", "curl -X "+op.Method, 1)
	}
	if x.JSON != "" {
		parts = append(parts, `-H 'Content-Type: application/json'`, "-d '"+strings.ReplaceAll(x.JSON, "'", `'\''`)+"'")
	}
	return strings.Join(parts, " \\\n  ")
}

func (x sample) python() string {
	class := strings.Contains(x.Python, "Sandbox.")
	sandbox := strings.Contains(x.Python, "sandbox.") && !class
	switch {
	case sandbox:
		return "from bothy import Sandbox\n\nsandbox = Sandbox.get(\"SANDBOX_ID\")\n" + x.Python
	case class:
		return "from bothy import Sandbox\n\n" + x.Python
	}
	return "from bothy import Client\n\nclient = Client()\n" + x.Python
}

func (x sample) js() string {
	imports, rest := "", x.JS
	if strings.HasPrefix(rest, "import ") {
		imports, rest, _ = strings.Cut(rest, "\n\n")
		imports += "\n"
	}
	sandbox := ""
	if strings.Contains(rest, "sandbox.") && !strings.Contains(rest, "bothy.") {
		sandbox = "const sandbox = await bothy.sandboxes.get(\"SANDBOX_ID\");\n"
	}
	return imports + "import { Bothy } from \"bothy\";\n\nconst bothy = new Bothy();\n" + sandbox + rest
}
