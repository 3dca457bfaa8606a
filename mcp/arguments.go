package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
)

// aliases are former names of arguments, by tool, which are still accepted.
var aliases = map[string]map[string]string{"resume_sandbox": {"id": "sandbox_id"}}

// renamed renames arguments with former names.
func renamed(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if p, ok := req.GetParams().(*mcp.CallToolParamsRaw); ok && aliases[p.Name] != nil {
			var in map[string]json.RawMessage
			if json.Unmarshal(p.Arguments, &in) == nil {
				p.Arguments = rename(in, aliases[p.Name], p.Arguments)
			}
		}
		return next(ctx, method, req)
	}
}

func rename(in map[string]json.RawMessage, names map[string]string, as json.RawMessage) json.RawMessage {
	for former, name := range names {
		if value, ok := in[former]; ok && in[name] == nil {
			in[name] = value
			delete(in, former)
		}
	}
	if out, err := json.Marshal(in); err == nil {
		return out
	}
	return as
}

// checked refuses arguments that a tool does not accept, in words that tell a model what to send
// instead. The library's own check names schemas that callers do not see.
func (t tools) checked(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		p, ok := req.GetParams().(*mcp.CallToolParamsRaw)
		if !ok || t.schemas[p.Name] == nil {
			return next(ctx, method, req)
		}
		if err := wrongArguments(t.schemas[p.Name], p.Arguments); err != nil {
			var r mcp.CallToolResult
			r.SetError(failure(err))
			return &r, nil
		}
		return next(ctx, method, req)
	}
}

func wrongArguments(s *jsonschema.Schema, arguments json.RawMessage) error {
	if arguments = bytes.TrimSpace(arguments); len(arguments) == 0 || string(arguments) == "null" {
		arguments = json.RawMessage("{}")
	}
	var in any
	if err := json.Unmarshal(arguments, &in); err != nil {
		return bothy.Errorf(bothy.CodeInvalid, "the arguments are not JSON: %v", err).WithHint("Send an object.")
	}
	if wrong := fault(s, "", in); wrong != "" {
		return bothy.Errorf(bothy.CodeInvalid, "%s", wrong).WithHint("The arguments are: %s.", names(s))
	}
	return nil
}

// fault returns what is wrong with a value, or "". at is the value's name.
func fault(s *jsonschema.Schema, at string, v any) string {
	switch {
	case len(s.AnyOf) > 0:
		return noneOf(s.AnyOf, at, v)
	case len(s.Enum) > 0 && !slices.Contains(s.Enum, v):
		return say(at, s, v)
	case v == nil && slices.Contains(s.Types, "null"):
		return ""
	}
	switch kind := kindOf(s); kind {
	case "object":
		o, ok := v.(map[string]any)
		if !ok {
			return say(at, s, v)
		}
		return faultOfObject(s, at, o)
	case "array":
		list, ok := v.([]any)
		if !ok {
			return say(at, s, v)
		}
		for i, x := range list {
			if wrong := fault(s.Items, fmt.Sprintf("%s[%d]", at, i), x); wrong != "" {
				return wrong
			}
		}
	case "string":
		if _, ok := v.(string); !ok {
			return say(at, s, v)
		}
	case "boolean":
		if _, ok := v.(bool); !ok {
			return say(at, s, v)
		}
	case "integer", "number":
		n, ok := v.(float64)
		if !ok || kind == "integer" && n != float64(int64(n)) || s.Minimum != nil && n < *s.Minimum || s.Maximum != nil && n > *s.Maximum {
			return say(at, s, v)
		}
	}
	return ""
}

// noneOf describes a value that matches no alternative: by the only one with its type, or else
// by a list of the alternatives.
func noneOf(alternatives []*jsonschema.Schema, at string, v any) string {
	_, isObject := v.(map[string]any)
	var forms []string
	for _, s := range alternatives {
		wrong := fault(s, at, v)
		if wrong == "" || isObject && kindOf(s) == "object" {
			return wrong
		}
		forms = append(forms, form(s))
	}
	return fmt.Sprintf("%s: give %s, not %s", at, strings.Join(forms, ", or "), shown(v))
}

func faultOfObject(s *jsonschema.Schema, at string, o map[string]any) string {
	for _, name := range s.Required {
		if _, ok := o[name]; !ok {
			return fmt.Sprintf("%s is missing", inside(at, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		of := s.Properties[name]
		if of == nil && s.AdditionalProperties != nil {
			of = s.AdditionalProperties
			if of.Not != nil {
				return fmt.Sprintf("there is no argument %s", inside(at, name))
			}
		}
		if of == nil {
			continue
		}
		if wrong := fault(of, inside(at, name), o[name]); wrong != "" {
			return wrong
		}
	}
	return ""
}

func inside(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

func say(at string, s *jsonschema.Schema, v any) string {
	if at == "" {
		at = "the arguments"
	}
	return fmt.Sprintf("%s: give %s, not %s", at, form(s), shown(v))
}

// kindOf is the type of a schema, which for a pointer also allows null.
func kindOf(s *jsonschema.Schema) string {
	for _, t := range append([]string{s.Type}, s.Types...) {
		if t != "" && t != "null" {
			return t
		}
	}
	return ""
}

// form describes what a schema accepts.
func form(s *jsonschema.Schema) string {
	switch kind := kindOf(s); {
	case len(s.Enum) > 0:
		return oneOf(s.Enum)
	case kind == "object" && len(s.Properties) > 0:
		return "an object with " + names(s)
	case kind == "object":
		return "an object"
	case kind == "array":
		return "a list, each entry " + form(s.Items)
	case kind == "integer" && s.Minimum != nil && s.Maximum != nil:
		return fmt.Sprintf("a whole number from %v to %v", *s.Minimum, *s.Maximum)
	case kind == "integer":
		return "a whole number"
	case kind == "boolean":
		return "true or false"
	default:
		return "a " + kind
	}
}

func oneOf(values []any) string {
	var words []string
	for _, v := range values {
		words = append(words, fmt.Sprint(v))
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// names lists an object's properties, required ones first.
func names(s *jsonschema.Schema) string {
	all := slices.Sorted(maps.Keys(s.Properties))
	if len(all) == 0 {
		return "none"
	}
	slices.SortStableFunc(all, func(a, b string) int {
		return strings.Compare(fmt.Sprint(!slices.Contains(s.Required, a)), fmt.Sprint(!slices.Contains(s.Required, b)))
	})
	return strings.Join(all, ", ")
}

// shown repeats a value that is short enough to be read.
func shown(v any) string {
	const most = 80
	switch x := v.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case nil:
		return "null"
	case string:
		if len(x) > most {
			return "this text"
		}
		return fmt.Sprintf("%q", x)
	}
	return fmt.Sprint(v)
}
