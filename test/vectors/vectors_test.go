package vectors

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// object is a JSON object: a step, or an answer.
type object = map[string]any

// scenario is a story of one sandbox. One that is alone has a new sandbox.
type scenario struct {
	Name  string   `json:"name"`
	Alone bool     `json:"alone"`
	Steps []object `json:"steps"`
}

// player does one step and returns the answer. It calls text with what a stream
// gives while it runs.
type player interface {
	play(step object, text func(string)) (object, *failure)
}

// failure is what a player says when a step was refused.
type failure struct {
	Code   string `json:"code"`
	Hint   string `json:"hint"`
	Detail string `json:"detail"`
}

// TestVectors plays all scenarios by REST and by command line, and by the SDKs
// whose programs are named: BOTHY_VECTORS_PYTHON is a Python that has the package,
// BOTHY_VECTORS_NODE a node, for js/dist/test.
func TestVectors(t *testing.T) {
	url, key := os.Getenv("BOTHY_TEST_URL"), os.Getenv("BOTHY_TEST_KEY")
	if url == "" || key == "" {
		t.Skip("needs a server: BOTHY_TEST_URL and BOTHY_TEST_KEY")
	}
	rest := &restPlayer{url: url, key: key}
	players := map[string]func(t *testing.T) player{"rest": func(*testing.T) player { return rest }}
	if bin := os.Getenv("BOTHY_BIN"); bin != "" {
		players["cli"] = func(t *testing.T) player { return &cliPlayer{bin: bin, env: environment(t, url, key)} }
	}
	if python := os.Getenv("BOTHY_VECTORS_PYTHON"); python != "" {
		for _, kind := range []string{"blocking", "asynchronous"} {
			players["python "+kind] = program(url, key, python, "../../python/tests/vectors.py", kind)
		}
	}
	if node := os.Getenv("BOTHY_VECTORS_NODE"); node != "" {
		players["javascript"] = program(url, key, node, "../../js/dist/test/vectors.js")
	}
	files, err := filepath.Glob("testdata/scenarios/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for name, start := range players {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // each player has sandboxes of its own
			p := start(t)
			for _, file := range files {
				t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) { playFile(t, file, name, p, rest) })
			}
		})
	}
}

// playFile plays the scenarios of a file, one after the other in one sandbox,
// whose folder is emptied between them.
func playFile(outer *testing.T, file, name string, p, rest player) {
	text, err := os.ReadFile(file)
	if err != nil {
		outer.Fatal(err)
	}
	var list []scenario
	if err := json.Unmarshal(text, &list); err != nil {
		outer.Fatalf("%s: %v", file, err)
	}
	shared := ""
	for _, s := range list {
		outer.Run(s.Name, func(t *testing.T) {
			g := &game{t: t, name: name, player: p, rest: rest, saved: object{}}
			switch {
			case s.Alone:
				g.sandbox = create(t, rest)
			case shared == "":
				shared = create(outer, rest)
				g.sandbox = shared
			default:
				g.sandbox = shared
				rest.play(object{"do": "exec", "sandbox": shared, "command": "find /workspace -mindepth 1 -delete", "user": "root"}, nil)
			}
			for i, step := range s.Steps {
				g.step(i, step)
			}
		})
	}
}

// game is one scenario that is played.
type game struct {
	t            *testing.T
	name         string
	player, rest player
	sandbox      string
	saved        object
}

// create makes a sandbox, which ends with the test.
func create(t *testing.T, rest player) string {
	made, failed := rest.play(object{"do": "create", "template": "python-3.12", "timeout_seconds": 600.0}, nil)
	if failed != nil {
		t.Fatalf("no sandbox: %+v", *failed)
	}
	id, _ := made["id"].(string)
	t.Cleanup(func() { rest.play(object{"do": "terminate", "sandbox": id}, nil) })
	return id
}

func (g *game) step(i int, step object) {
	g.t.Helper()
	where := fmt.Sprintf("step %d (%v)", i+1, step["do"])
	if leftOut(step, g.name) {
		return
	}
	asked := object{"sandbox": g.sandbox}
	for k, v := range step {
		switch k {
		case "expect", "fails", "save", "on", "not":
		default:
			asked[k] = g.fill(v)
		}
	}
	var got object
	var failed *failure
	if step["do"] == "join" {
		got = join(asked["parts"].([]any))
	} else {
		got, failed = g.player.play(asked, g.during(where, step))
	}
	wanted, _ := step["fails"].(string)
	switch {
	case failed == nil && wanted != "":
		g.t.Fatalf("%s: %v, and it should fail with %s", where, got, wanted)
	case failed != nil && failed.Code != wanted:
		g.t.Fatalf("%s failed: %+v, want code %q", where, *failed, wanted)
	case failed != nil && failed.Hint == "":
		g.t.Errorf("%s: %s has no hint: %s", where, failed.Code, failed.Detail)
	}
	expected, _ := step["expect"].(object)
	for path, want := range expected {
		if why := differs(lookUp(got, path), g.fill(want)); why != "" {
			g.t.Errorf("%s: %s %s", where, path, why)
		}
	}
	names, _ := step["save"].(object)
	for path, name := range names {
		g.saved["$"+name.(string)] = lookUp(got, path)
	}
	if g.t.Failed() {
		g.t.FailNow()
	}
}

// during returns what plays the steps that belong into the middle of a stream.
func (g *game) during(where string, step object) func(string) {
	on, ok := step["on"].(object)
	if !ok {
		return func(string) {}
	}
	seen, done := "", false
	return func(text string) {
		seen += text
		if done || !strings.Contains(seen, on["text"].(string)) {
			return
		}
		done = true
		for _, s := range on["do"].([]any) {
			inner := object{"sandbox": g.sandbox}
			for k, v := range s.(object) {
				inner[k] = g.fill(v)
			}
			if _, failed := g.rest.play(inner, nil); failed != nil {
				g.t.Errorf("%s: in the middle: %+v", where, *failed)
			}
		}
	}
}

func leftOut(step object, name string) bool {
	list, _ := step["not"].([]any)
	for _, n := range list {
		if n == name {
			return true
		}
	}
	return false
}

// fill puts what was saved in its place.
func (g *game) fill(v any) any {
	switch v := v.(type) {
	case string:
		if saved, ok := g.saved[v]; ok {
			return saved
		}
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = g.fill(v[i])
		}
		return list
	case object:
		filled := object{}
		for k := range v {
			filled[k] = g.fill(v[k])
		}
		return filled
	}
	return v
}

// join puts the pieces of an output together and describes the whole.
func join(parts []any) object {
	var all strings.Builder
	for _, p := range parts {
		all.WriteString(p.(string))
	}
	lines := strings.Split(strings.TrimSuffix(all.String(), "\n"), "\n")
	return object{"bytes": float64(all.Len()), "lines": float64(len(lines)), "first": lines[0], "last": lines[len(lines)-1]}
}

// lookUp follows a path such as results.0.text/plain. What is not there is nil.
func lookUp(v any, path string) any {
	for _, name := range strings.Split(path, ".") {
		switch x := v.(type) {
		case object:
			v = x[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

// differs says why a value is not what is wanted, or "".
func differs(got, want any) string {
	rules, ok := want.(object)
	if !ok {
		if !reflect.DeepEqual(got, want) {
			return fmt.Sprintf("is %s, want %s", brief(got), brief(want))
		}
		return ""
	}
	for rule, arg := range rules {
		if !obeys(rule, got, arg) {
			return fmt.Sprintf("is %s, want %s", brief(got), brief(want))
		}
	}
	return ""
}

func obeys(rule string, got, arg any) bool {
	text, _ := got.(string)
	list, _ := got.([]any)
	switch rule {
	case "contains":
		return strings.Contains(text, arg.(string))
	case "matches":
		return regexp.MustCompile(arg.(string)).MatchString(text)
	case "min":
		n, ok := got.(float64)
		return ok && n >= arg.(float64)
	case "length":
		return float64(len(list)) == arg.(float64)
	case "some":
		for _, item := range list {
			if some(item, arg) {
				return true
			}
		}
		return false
	}
	panic("no rule is called " + rule)
}

// some reports whether an item has all that is wanted of it.
func some(item, want any) bool {
	parts, ok := want.(object)
	if !ok {
		return reflect.DeepEqual(item, want)
	}
	for path, v := range parts {
		if differs(lookUp(item, path), v) != "" {
			return false
		}
	}
	return true
}

func brief(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(b) > 300 {
		return fmt.Sprintf("%s … (%d bytes)", b[:300], len(b))
	}
	return string(b)
}

// outputs collects what a command writes, as every player tells it: as text, in
// base64, and how much.
type outputs struct{ stdout, stderr []byte }

func (o *outputs) add(stream string, b []byte) {
	if stream == "stderr" {
		o.stderr = append(o.stderr, b...)
		return
	}
	o.stdout = append(o.stdout, b...)
}

func (o *outputs) answer() object {
	return object{
		"stdout": strings.ToValidUTF8(string(o.stdout), "\uFFFD"), "stderr": strings.ToValidUTF8(string(o.stderr), "\uFFFD"),
		"stdout_base64": base64.StdEncoding.EncodeToString(o.stdout), "stderr_base64": base64.StdEncoding.EncodeToString(o.stderr),
		"stdout_bytes": float64(len(o.stdout)), "stderr_bytes": float64(len(o.stderr)),
	}
}

// followed is the answer to follow: the text from an offset on, and what comes
// behind it. stop_after is the offset at which to leave.
func followed(from int64, text []byte, exit any) object {
	line, _, _ := strings.Cut(string(text), "\n")
	return object{"from": float64(from), "text": string(text), "next": float64(from) + float64(len(text)), "line": line, "exit_code": exit}
}

func number(v any, otherwise float64) float64 {
	if n, ok := v.(float64); ok && !math.IsNaN(n) {
		return n
	}
	return otherwise
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

// content is what a write step writes.
func content(step object) []byte {
	if s, ok := step["content_base64"].(string); ok {
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			panic(err)
		}
		return b
	}
	return []byte(text(step["content"]))
}
