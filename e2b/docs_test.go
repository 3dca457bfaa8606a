package e2b

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tested names the tests of each supported row of the table in docs/e2b.md, as file:text.
var tested = map[string][]string{
	"sandboxes:": {"sdk_test.py:def test_life", "sdk_test.py:def test_list", "sdk_test.py:def test_pause", "sdk_test.py:def test_fork",
		"sdk_test.py:def test_snapshot", "sdk_test.py:def test_network", "oldest_test.py:Sandbox.create"},
	"commands, terminals,": {"sdk_test.py:class Commands", "sdk_test.py:def test_pty", "sdk_test.py:class Files", "sdk_test.py:def test_watch",
		"sdk_test.py:def test_signed", "sdk_test.py:def test_metadata", "rest_test.py:class Git"},
	"code:":                                {"interpreter_test.py:def test_contexts", "interpreter_test.py:def test_charts", "interpreter_test.py:def test_table", "interpreter_test.py:def test_bash"},
	"metrics":                              {"sdk_test.py:def test_metrics", "wire_test.py:def test_metrics", "sdk_test.py:def test_history"},
	"the list of events":                   {"wire_test.py:def test_webhooks_and_events"},
	"logs":                                 {"wire_test.py:def test_logs"},
	"snapshots without memory":             {"wire_test.py:def test_without_memory", "sdk_test.py:def test_snapshot_without_memory", "sdk_test.py:def test_reboot"},
	"forks":                                {"sdk_test.py:def test_fork", "wire_test.py:def test_bad_forks"},
	"a pause without memory when":          {"wire_test.py:autoPauseMemory"},
	"headers of requests":                  {"domain.test.mjs:rules set headers", "wire_test.py:def test_network_options"},
	"`egress_proxy`":                       {"wire_test.py:def test_network_options"},
	"templates: build":                     {"template_test.py:def test_build_and_use", "wire_test.py:def test_builds", "wire_test.py:def test_templates"},
	"start and ready commands":             {"template_test.py:def test_programs_that_run_already", "template_test.py:def test_failures_say_why"},
	"credentials of registries":            {"wire_test.py:def test_builds"},
	"tags of templates":                    {"template_test.py:def test_tags", "wire_test.py:def test_tags"},
	"joining uploaded parts":               {"wire_test.py:def test_compose"},
	"volumes, secrets, workload identity ": {"rest_test.py:class Absent", "wire_test.py:def test_absent"},
}

func page(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../docs/e2b.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestTableIsTested fails for a row without a test, and for tests without a row.
func TestTableIsTested(t *testing.T) {
	_, text, ok := strings.Cut(page(t), "| of E2B | here |\n|---|---|\n")
	if !ok {
		t.Fatal("the table is not there")
	}
	text, _, _ = strings.Cut(text, "\n\n")
	seen := map[string]bool{}
	for row := range strings.Lines(text) {
		found := false
		for begin := range tested {
			if strings.HasPrefix(row, "| "+begin) {
				seen[begin], found = true, true
			}
		}
		if !found {
			t.Errorf("no test is named for the row %q", row)
		}
	}
	for begin, tests := range tested {
		if !seen[begin] {
			t.Errorf("no row begins with %q", begin)
		}
		for _, test := range tests {
			file, text, _ := strings.Cut(test, ":")
			b, err := os.ReadFile(filepath.Join("../test/e2b", file))
			if err != nil || !strings.Contains(string(b), text) {
				t.Errorf("%s: there is no %q (%v)", begin, test, err)
			}
		}
	}
}

// TestTestedVersions compares the versions documented as tested with those that are tested.
func TestTestedVersions(t *testing.T) {
	doc := page(t)
	row := func(name, language, version string) {
		for line := range strings.Lines(doc) {
			if strings.HasPrefix(line, "| `"+name+"`") && strings.Contains(line, language) && strings.Contains(line, version) {
				return
			}
		}
		t.Errorf("docs/e2b.md does not say that %s %s is tested", name, version)
	}
	files, err := filepath.Glob("../test/e2b/requirements-*.txt")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^([\w-]+)==(\S+)$`).FindAllStringSubmatch(string(b), -1) {
			if m[1] != "langchain-tests" {
				row(m[1], map[bool]string{true: "(Python)"}[strings.HasPrefix(m[1], "e2b")], m[2])
			}
		}
	}
	for _, folder := range []string{"newest", "oldest", "compute"} {
		b, err := os.ReadFile(filepath.Join("../test/e2b", folder, "package.json"))
		if err != nil {
			t.Fatal(err)
		}
		var p struct{ Dependencies map[string]string }
		if err := json.Unmarshal(b, &p); err != nil {
			t.Fatal(err)
		}
		for name, version := range p.Dependencies {
			row(name, map[bool]string{true: "(JavaScript)"}[name == "e2b"], version)
		}
	}
}
