package openapi

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bothy-dev/bothy"
)

// The types of the root package know nothing of OpenAPI. This is what their Go types do not say:
// formats, choices, bounds, defaults, descriptions.

func registerAliases(r huma.Registry) {
	r.RegisterTypeAlias(reflect.TypeFor[bothy.Network](), reflect.TypeFor[networkSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[bothy.Command](), reflect.TypeFor[commandSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[bothy.State](), reflect.TypeFor[StateSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[bothy.EndReason](), reflect.TypeFor[endReasonSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[bothy.OnTimeout](), reflect.TypeFor[onTimeoutSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[bothy.HealthStatus](), reflect.TypeFor[healthStatusSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[bothy.OnHostLoss](), reflect.TypeFor[onHostLossSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[bothy.SnapshotKind](), reflect.TypeFor[snapshotKindSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[bothy.Durable](), reflect.TypeFor[durableSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[bothy.Scope](), reflect.TypeFor[scopeSchema]())
	r.RegisterTypeAlias(reflect.TypeFor[bothy.FileType](), reflect.TypeFor[fileTypeSchema]())
}

func choice[T ~string](values ...T) *huma.Schema {
	s := &huma.Schema{Type: huma.TypeString}
	for _, v := range values {
		s.Enum = append(s.Enum, string(v))
	}
	return s
}

type (
	StateSchema        string
	endReasonSchema    string
	onTimeoutSchema    string
	healthStatusSchema string
	onHostLossSchema   string
	snapshotKindSchema string
	durableSchema      string
	scopeSchema        string
	fileTypeSchema     string
	commandSchema      struct{}
	networkSchema      struct{}
)

// Schema implements huma.SchemaProvider.
func (StateSchema) Schema(huma.Registry) *huma.Schema {
	return choice(bothy.StateStarting, bothy.StateRunning, bothy.StatePausing, bothy.StatePaused,
		bothy.StateResuming, bothy.StateStopping, bothy.StateStopped, bothy.StateFailed)
}

// Schema implements huma.SchemaProvider.
func (endReasonSchema) Schema(huma.Registry) *huma.Schema {
	return choice(bothy.EndTerminated, bothy.EndTimeout, bothy.EndOutOfMemory, bothy.EndDiskFull,
		bothy.EndExited, bothy.EndHostRestart, bothy.EndHostLost, bothy.EndError)
}

// Schema implements huma.SchemaProvider.
func (onTimeoutSchema) Schema(huma.Registry) *huma.Schema {
	return choice(bothy.TimeoutTerminate, bothy.TimeoutPause)
}

// Schema implements huma.SchemaProvider.
func (healthStatusSchema) Schema(huma.Registry) *huma.Schema { return choice(bothy.HealthStatuses...) }

// Schema implements huma.SchemaProvider.
func (onHostLossSchema) Schema(huma.Registry) *huma.Schema {
	return choice(bothy.HostLossPause, bothy.HostLossResume, bothy.HostLossFail)
}

// Schema implements huma.SchemaProvider.
func (snapshotKindSchema) Schema(huma.Registry) *huma.Schema {
	return choice(bothy.SnapshotMemory, bothy.SnapshotFiles)
}

// Schema implements huma.SchemaProvider.
func (durableSchema) Schema(huma.Registry) *huma.Schema {
	return choice(bothy.DurableHost, bothy.DurableStore)
}

// Schema implements huma.SchemaProvider.
func (scopeSchema) Schema(huma.Registry) *huma.Schema { return choice(bothy.AllScopes...) }

// Schema implements huma.SchemaProvider.
func (fileTypeSchema) Schema(huma.Registry) *huma.Schema {
	return choice(bothy.FileRegular, bothy.FileDirectory, bothy.FileSymlink, bothy.FileOther)
}

type object = map[string]any

// LooseOneOf documents alternatives and leaves it to the type's own decoder to distinguish them,
// because that gives better errors.
func LooseOneOf(text string, alternatives ...object) *huma.Schema {
	all := []any{}
	for _, a := range alternatives {
		all = append(all, a)
	}
	return &huma.Schema{Description: text, Extensions: object{"oneOf": all}}
}

// Schema implements huma.SchemaProvider.
func (commandSchema) Schema(huma.Registry) *huma.Schema {
	s := LooseOneOf("A line for the shell (`bash -lc`, or `sh -lc` where the image has no bash), or an argument vector that is run as it is.",
		object{"type": "string"},
		object{"type": "array", "items": object{"type": "string"}, "minItems": 1})
	s.Examples = []any{"echo hello", []any{"python3", "main.py"}}
	return s
}

// Schema implements huma.SchemaProvider.
func (networkSchema) Schema(huma.Registry) *huma.Schema {
	modes := []any{string(bothy.NetworkOff), string(bothy.NetworkRestricted), string(bothy.NetworkOpen)}
	texts := func(text string) object {
		return object{"type": "array", "items": object{"type": "string"}, "description": text}
	}
	s := LooseOneOf("What the sandbox may reach: a mode, or an object. `restricted` as a string means all the presets; an object names its own.",
		object{"type": "string", "enum": modes},
		object{
			"type": "object", "additionalProperties": false,
			"properties": object{
				"mode":          object{"type": "string", "enum": modes, "default": string(bothy.NetworkRestricted)},
				"presets":       texts("Names of lists of domains, such as pypi, npm, github, go, debian, llm."),
				"allow_domains": texts("Domains; *.example.org stands for those below example.org."),
				"allow_cidrs":   texts("Ranges of addresses that may be reached without a name."),
				"allow_ports":   object{"type": "array", "items": object{"type": "integer", "minimum": 1, "maximum": 65535}, "description": "Ports that may be reached."},
				"deny_cidrs":    texts("Ranges of addresses that are closed in mode open, but for what the other lists allow."),
			},
		})
	s.Examples = []any{"off", object{"mode": "restricted", "presets": []string{"pypi"}, "allow_domains": []string{"api.example.com"}}}
	return s
}

// property describes one field: a description, and changes to its schema.
type property struct {
	text string
	more []func(*huma.Schema)
}

func field(text string, more ...func(*huma.Schema)) property { return property{text, more} }

func between(low, high float64) func(*huma.Schema) {
	return func(s *huma.Schema) { s.Minimum, s.Maximum = &low, &high }
}

func atLeast(low float64) func(*huma.Schema) { return func(s *huma.Schema) { s.Minimum = &low } }

func byDefault(v any) func(*huma.Schema) { return func(s *huma.Schema) { s.Default = v } }

func oneOf(values ...string) func(*huma.Schema) {
	return func(s *huma.Schema) { s.Enum = choice(values...).Enum }
}

func atMost(characters int) func(*huma.Schema) {
	return func(s *huma.Schema) { s.MaxLength = &characters }
}

func example(v any) func(*huma.Schema) { return func(s *huma.Schema) { s.Examples = []any{v} } }

func writeOnly(s *huma.Schema) { s.WriteOnly = true }

// finishSchemas adds the descriptions of fields. A missing schema or field belongs to a service
// that this server does not have.
func finishSchemas(schemas map[string]*huma.Schema) {
	for name, fields := range Descriptions {
		s := schemas[name]
		if s == nil {
			continue
		}
		for field, p := range fields {
			f := s.Properties[field]
			if f == nil {
				continue
			}
			if p.text != "" {
				f.Description = p.text
			}
			for _, change := range p.more {
				change(f)
			}
		}
		s.PrecomputeMessages()
	}
}
