package mcp

import (
	"regexp"
	"strings"
)

// The services' hints name REST calls and shell commands. A model has neither, so it is told the
// tool that does the same, if there is one.
var (
	restCall = regexp.MustCompile(`(?:GET|POST|PUT|PATCH|DELETE) /v1/[^\s,.]+`)
	command  = regexp.MustCompile("`?\\bbothy (ls|snapshots|resume|pause|rm|restart|create|fork|rollback)\\b(?: --[a-z]+)*( (?:sbx|snp)\\w+)?`?")
	// either matches both when they follow one another.
	either = regexp.MustCompile(`(\w+_\w+(?: with [^.,]*?)?) or (\w+_\w+)`)
	// elsewhere are the hints that apply only to the other APIs, in full.
	elsewhere = strings.NewReplacer(
		"GET /openapi.json, or open /docs, to see what this call takes.", "The tool's schema says what it takes.",
		"Ask as another user, such as root.", `Do it as root: run_shell with user "root".`,
	)
)

// restTools are the tools for REST calls, by method and path suffix; the first
// match counts.
var restTools = []struct{ method, end, tool string }{
	{"POST", "/resume", "resume_sandbox"},
	{"POST", "/pause", "pause_sandbox"},
	{"POST", "/restart", "restart_sandbox"},
	{"POST", "/fork", "fork_sandbox"},
	{"POST", "/rollback", "rollback_sandbox"},
	{"POST", "/snapshots", "snapshot_sandbox"},
	{"POST", "/exec", "run_shell"},
	{"POST", "/code", "run_code"},
	{"POST", "/sandboxes", "create_sandbox"},
	{"GET", "/sandboxes", "list_sandboxes"},
	{"GET", "/limits", "get_sandbox_limits"},
	{"DELETE", "", "terminate_sandbox"},
}

// commandTools are the tools of commands.
var commandTools = map[string]string{
	"ls": "list_sandboxes", "resume": "resume_sandbox", "pause": "pause_sandbox", "restart": "restart_sandbox", "rm": "terminate_sandbox",
	"create": "create_sandbox", "fork": "fork_sandbox", "rollback": "rollback_sandbox",
}

// inTools translates a hint to the tools. Calls and commands without a tool are kept: they are
// for the person whom the model works for.
func inTools(hint string) string {
	hint = elsewhere.Replace(hint)
	hint = restCall.ReplaceAllStringFunc(hint, func(call string) string {
		method, path, _ := strings.Cut(call, " ")
		for _, x := range restTools {
			if x.method == method && strings.HasSuffix(path, x.end) && (x.end != "" || strings.Count(path, "/") == 3 && strings.Contains(path, "/sandboxes/")) {
				return x.tool + idOf(path)
			}
		}
		return call
	})
	hint = command.ReplaceAllStringFunc(hint, func(line string) string {
		m := command.FindStringSubmatch(line)
		if tool := commandTools[m[1]]; tool != "" {
			return tool + given(strings.TrimSpace(m[2]))
		}
		return line
	})
	return either.ReplaceAllStringFunc(hint, func(s string) string {
		if m := either.FindStringSubmatch(s); m[1] == m[2] {
			return m[1]
		}
		return s
	})
}

// idOf is the sandbox of a path, in the form of an argument.
func idOf(path string) string {
	parts := strings.Split(path, "/") // "", v1, sandboxes, ID, …
	if len(parts) > 3 && parts[2] == "sandboxes" {
		return given(parts[3])
	}
	return ""
}

func given(id string) string {
	if id == "" {
		return ""
	}
	return ` with sandbox_id "` + id + `"`
}
