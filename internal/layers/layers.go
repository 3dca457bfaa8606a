// Package layers holds the rule of which package may import which. Its test compares the rule
// with the output of `go list`, and draws it.
package layers

import (
	"fmt"
	"slices"
	"strings"
)

// Module is the import path of the root package.
const Module = "github.com/bothy-dev/bothy"

// An area is a group of rooms that the picture draws as one box.
type area struct {
	id, title string
	rooms     []string
}

// areas are in the order in which the picture shows them.
var areas = []area{
	{"program", "the program", []string{"cmd/bothy", "cli", "server", "config", "doctor"}},
	{"doors", "what clients speak to", []string{"api", "api/rest", "api/ports", "api/openapi", "api/middleware", "api/inflight", "api/problem", "mcp", "e2b", "openai", "console", "client", "coding"}},
	{"services", "services", []string{"lifecycle", "lifecycle/admission", "lifecycle/engines", "lifecycle/instance", "lifecycle/ledger", "lifecycle/register", "lifecycle/warm", "access", "access/certs", "access/session", "access/vault", "agents", "audit", "cluster", "depot", "metering", "telemetry", "template", "templates", "webhook"}},
	{"storage", "storage", []string{"store", "blob", "snapshot"}},
	{"machines", "sandboxes", []string{"engine", "gateway", "guest", "guest/abi", "cmd/sentry", "cmd/guest", "cmd/vminit"}},
}

// allowed lists for each room the others that its packages may import, besides their own room,
// the root package and internal. A room that is not listed may import no other.
var allowed = map[string][]string{
	"cmd/bothy":  {"cli"},
	"cmd/guest":  {"guest", "guest/abi"},
	"cmd/sentry": {"engine"},
	"cmd/vminit": {"engine"},
	"cli": {
		"access", "audit", "client", "coding", "config", "doctor", "engine", "lifecycle/register", "mcp", "server", "snapshot", "template", "templates",
	},
	"server": {
		"access", "access/certs", "access/session", "access/vault", "agents", "api", "api/inflight", "api/middleware", "api/rest", "audit", "blob", "client", "cluster", "config", "console", "depot", "doctor", "e2b", "engine", "gateway", "guest",
		"lifecycle", "lifecycle/engines", "lifecycle/warm", "mcp", "metering", "openai", "snapshot", "store", "telemetry", "template", "webhook",
	},
	"engine":             {"guest/abi"},
	"guest":              {"guest/abi"},
	"api":                {"access/session", "api/inflight", "api/middleware", "api/openapi", "api/ports", "api/rest"},
	"api/rest":           {"api/middleware", "api/openapi", "api/problem"},
	"api/ports":          {"api/middleware", "api/openapi"},
	"api/openapi":        {"api/middleware", "api/problem"},
	"api/middleware":     {"access/session", "api/inflight", "api/problem", "store"},
	"coding":             {"client"},
	"e2b":                {"guest"}, // the messages of E2B's protocol, which the guest speaks too
	"lifecycle":          {"blob", "lifecycle/admission", "lifecycle/engines", "lifecycle/instance", "lifecycle/ledger", "lifecycle/register", "lifecycle/warm", "snapshot", "store"},
	"lifecycle/warm":     {"blob", "lifecycle/engines", "lifecycle/instance", "snapshot", "store"},
	"lifecycle/instance": {"store"},
	"lifecycle/ledger":   {"store"},
	"access":             {"store"},
	"access/session":     {"store"},
	"agents":             {"store"},
	"audit":              {"store"},
	"cluster":            {"store"},
	"depot":              {"blob", "engine", "snapshot", "store", "template"},
	"metering":           {"store"},
	"template":           {"store", "templates"},
	"webhook":            {"store"},
}

// tools are packages that are not part of the product, and may import anything.
var tools = []string{"test", "examples", "third_party", "cmd/pybundle", "bench", "cmd/bothy-bench", "template/cmd", "mcp/internal", "agents/agentstest", "api/apitest", "engine/enginetest", "engine/fake"}

// A Package is the output of `go list -json` for one package.
type Package struct {
	ImportPath string
	Imports    []string
}

// An Arrow is one import of another room's package.
type Arrow struct{ From, To string }

func (a Arrow) String() string { return a.From + " → " + a.To }

func within(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

// roomOf returns the room of a package of this module, or "" if it has none: the root, internal,
// and tools.
func roomOf(path string) string {
	rel, ok := strings.CutPrefix(path, Module+"/")
	if !ok || within(rel, "internal") || slices.ContainsFunc(tools, func(t string) bool { return within(rel, t) }) {
		return ""
	}
	room, rest, _ := strings.Cut(rel, "/")
	next, _, _ := strings.Cut(rest, "/")
	if inner := room + "/" + next; room == "cmd" || areaOf(inner) != nil {
		return inner
	}
	return room
}

// Check returns the imports between rooms, and what is wrong with them.
func Check(list []Package) (arrows map[Arrow]bool, wrong []string) {
	arrows = map[Arrow]bool{}
	for _, p := range list {
		if p.ImportPath == Module {
			wrong = append(wrong, checkRoot(p)...)
		}
		from := roomOf(p.ImportPath)
		if from == "" {
			continue
		}
		if areaOf(from) == nil {
			wrong = append(wrong, fmt.Sprintf("%s is in no area: add the room %s to internal/layers", p.ImportPath, from))
		}
		for _, i := range p.Imports {
			to := roomOf(i)
			if to == "" || to == from {
				continue
			}
			if !slices.Contains(allowed[from], to) {
				wrong = append(wrong, fmt.Sprintf("%s imports %s, and %s may not import %s: have it take an interface, which server fills in",
					p.ImportPath, i, from, to))
			}
			arrows[Arrow{from, to}] = true
		}
	}
	return arrows, append(wrong, unused(arrows)...)
}

// checkRoot checks that the root package imports only the standard library.
func checkRoot(p Package) (wrong []string) {
	for _, i := range p.Imports {
		if first, _, _ := strings.Cut(i, "/"); strings.Contains(first, ".") {
			wrong = append(wrong, fmt.Sprintf("the root package imports %s, and may import the standard library only", i))
		}
	}
	return wrong
}

// unused finds allowed imports that do not occur, so that the list stays short.
func unused(arrows map[Arrow]bool) (wrong []string) {
	for from, list := range allowed {
		for _, to := range list {
			if a := (Arrow{from, to}); !arrows[a] {
				wrong = append(wrong, fmt.Sprintf("%v is allowed and not used: remove it from internal/layers", a))
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

func areaOf(room string) *area {
	for i := range areas {
		if slices.Contains(areas[i].rooms, room) {
			return &areas[i]
		}
	}
	return nil
}
