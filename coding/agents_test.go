package coding

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
}

func claudeCode(t *testing.T) *Agent {
	t.Helper()
	all, err := Agents("")
	if err != nil {
		t.Fatal(err)
	}
	return all["claude-code"]
}

func TestAnAgentsNeedsAreAddedToARequest(t *testing.T) {
	a := claudeCode(t)
	req := bothy.SandboxCreate{Env: map[string]string{"IS_SANDBOX": "0"}}
	if err := a.Apply(&req, lookup(map[string]string{"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "token"})); err != nil {
		t.Fatal(err)
	}
	if req.Template != "claude-code" || req.MemoryMB != a.MemoryMB || req.Env["IS_SANDBOX"] != "0" || req.Env["DISABLE_AUTOUPDATER"] != "1" {
		t.Errorf("%+v", req)
	}
	if len(req.Secrets) != 1 || req.Secrets[0].Name != "CLAUDE_CODE_OAUTH_TOKEN" || req.Secrets[0].Value != "token" {
		t.Errorf("secrets: %+v", req.Secrets)
	}
	for _, value := range req.Env {
		if value == "token" {
			t.Error("the credential is in the environment")
		}
	}
	if !slices.Equal(req.Network.AllowDomains, []string{"api.anthropic.com"}) || req.Network.Mode != bothy.NetworkRestricted || len(req.Network.Presets) > 0 {
		t.Errorf("network: %+v", req.Network)
	}

	if err := a.Apply(&bothy.SandboxCreate{}, lookup(nil)); err == nil || !strings.Contains(err.Error(), "ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN") {
		t.Errorf("without a credential: %v", err)
	}
}

func TestWhatARequestSaysItselfStays(t *testing.T) {
	a := claudeCode(t)
	own := bothy.Secret{Name: "ANTHROPIC_API_KEY", Value: "mine", Hosts: []string{"llm.example.com"}}
	req := bothy.SandboxCreate{
		Template: "other", Size: "large", Secrets: []bothy.Secret{own},
		Network: &bothy.Network{Mode: bothy.NetworkRestricted, Presets: []string{"npm"}, AllowPorts: []uint16{8443}},
	}
	if err := a.Apply(&req, lookup(map[string]string{"ANTHROPIC_API_KEY": "theirs"})); err != nil {
		t.Fatal(err)
	}
	if req.Template != "other" || req.MemoryMB != 0 || len(req.Secrets) != 1 || req.Secrets[0].Value != "mine" {
		t.Errorf("%+v", req)
	}
	n := req.Network
	if !slices.Equal(n.AllowDomains, own.Hosts) || !slices.Equal(n.Presets, []string{"npm"}) || !slices.Equal(n.AllowPorts, []uint16{8443}) {
		t.Errorf("network: %+v", n)
	}

	open := bothy.SandboxCreate{Network: &bothy.Network{Mode: bothy.NetworkOpen}}
	if err := a.Apply(&open, lookup(map[string]string{"ANTHROPIC_API_KEY": "x"})); err != nil || open.Network.Mode != bothy.NetworkOpen || len(open.Network.AllowDomains) > 0 {
		t.Errorf("open: %+v, %v", open.Network, err)
	}
	all := bothy.SandboxCreate{Network: &bothy.Network{Mode: bothy.NetworkRestricted}}
	if err := a.Apply(&all, lookup(map[string]string{"ANTHROPIC_API_KEY": "x"})); err != nil || !slices.Contains(all.Network.Presets, "pypi") {
		t.Errorf("all presets: %+v, %v", all.Network, err)
	}
}

func TestTasks(t *testing.T) {
	a := &Agent{Name: "a", Run: []string{"run", "{task}"}, Continue: []string{"again", "{task}"}}
	for again, want := range map[bool]string{false: "run", true: "again"} {
		got, err := a.Task("$(x) 'y'", again)
		if err != nil || !slices.Equal(got, []string{want, "$(x) 'y'"}) {
			t.Errorf("%v: %q, %v", again, got, err)
		}
	}
	if a.Run[1] != "{task}" {
		t.Error("the agent was changed")
	}
}

func TestAFileAddsAgents(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agents.yaml")
	for text, want := range map[string]string{
		"mine: {template: t, run: [x]}":                       "",
		"claude-code: {template: t, run: [x]}":                "",
		"mine: {template: t}":                                 "one of acp and run",
		"mine: {run: [x]}":                                    "template",
		"mine: {template: t, run: [x], secret: y}":            "secret",
		"mine: {template: t, run: [x], secrets: [{name: K}]}": "hosts",
		"mine: {template: t, run: [x], output: prose}":        "prose",
		"mine:": "template",
		"mine: {template: t, acp: [x], secrets: [{name: K, hosts: [h]}]}\n": "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		all, err := Agents(file)
		if want == "" && (err != nil || all["claude-code"] == nil) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Every agent that Bothy knows has what makes its template.
func TestKnownAgentsHaveADockerfile(t *testing.T) {
	all, err := Agents("")
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range all {
		if _, err := os.Stat(filepath.Join(a.Template, "Dockerfile")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClaudeCodesLinesAreShownToAPerson(t *testing.T) {
	var b strings.Builder
	w := Render("claude", &b)
	for _, piece := range []string{
		`{"type":"system","subtype":"init"}` + "\n" + `{"type":"assistant","message":{"content":[{"type":"text","te`,
		`xt":"I look.\u001b[2J"},{"type":"tool_use","name":"Bash","input":{"command":"ls\ncat x","description":"d"}}]}}` + "\n\n",
		`{"type":"user","message":{"content":[{"type":"tool_result","content":"secret"}]}}` + "\nno JSON\n",
		`{"type":"result","subtype":"error_max_turns","is_error":true,"result":"why"}`,
	} {
		if _, err := w.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "I look.[2J\n→ Bash ls …\nno JSON\nfailed: error_max_turns why\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
