package mcp

import "testing"

func TestHintsNameTools(t *testing.T) {
	for hint, want := range map[string]string{
		"Resume it first: POST /v1/sandboxes/sbx1/resume, or create it with auto_resume.":              `Resume it first: resume_sandbox with sandbox_id "sbx1", or create it with auto_resume.`,
		"Start it again from the beginning: POST /v1/sandboxes/sbx1/restart, or create a new sandbox.": `Start it again from the beginning: restart_sandbox with sandbox_id "sbx1", or create a new sandbox.`,
		"List your sandboxes with `bothy ls` or GET /v1/sandboxes.":                                    "List your sandboxes with list_sandboxes.",
		"`bothy ls --all` lists them.":                                     "list_sandboxes lists them.",
		"Terminate or pause one: bothy ls. Paused sandboxes do not count.": "Terminate or pause one: list_sandboxes. Paused sandboxes do not count.",
		"It stays paused until it is resumed: bothy resume sbx1.":          `It stays paused until it is resumed: resume_sandbox with sandbox_id "sbx1".`,
		"End it with DELETE /v1/sandboxes/sbx1.":                           `End it with terminate_sandbox with sandbox_id "sbx1".`,
		"GET /openapi.json, or open /docs, to see what this call takes.":   "The tool's schema says what it takes.",
		"Ask as another user, such as root.":                               `Do it as root: run_shell with user "root".`,
		// Hints about things that no tool does are for the user.
		"Make it: bothy template build python-3.12.": "Make it: bothy template build python-3.12.",
		"Make a key with `bothy token create`.":      "Make a key with `bothy token create`.",
		"`bothy snapshots` lists them.":              "`bothy snapshots` lists them.",
		"Give a number from 1 to 5.":                 "Give a number from 1 to 5.",
	} {
		if got := inTools(hint); got != want {
			t.Errorf("%q\n became %q\n    want %q", hint, got, want)
		}
	}
}
