package main

import "slices"

// A suite is run by scripts/suite under its name.
type suite struct {
	name string
	// needs are suites that must have passed before it begins.
	needs []string
	// alone is set if it uses all of the host: nothing runs beside it.
	alone bool
	// guards are what it tests, as beginnings of paths. It is skipped if nothing below them has changed since a
	// run in this folder that passed. A suite without guards is never skipped.
	guards []string
	// long is set if only make test-all runs it.
	long bool
}

// What the programs in a sandbox and the server are made of. Suites of clients look at the whole through one
// door; what lies behind the doors has suites of its own, which are never skipped.
var (
	kernel = []string{"go.mod", "third_party/", "engine/gvisor/", "engine/engine", "guest/abi/", "cmd/sentry/"}
	doors  = []string{"go.mod", "api/", "access/", "client/", "python/", "js/", "server/", "lifecycle/", "guest/", "scripts/", "Makefile"}
)

// suites are in the order in which they begin. Those that run beside others come first, the long ones among
// them at the start, so that none is left over at the end.
var suites = []suite{
	{name: "host"},
	{name: "check"},
	{name: "unit"},
	{name: "docs", needs: []string{"host"}},
	{name: "integrations", needs: []string{"host"}, guards: with(doors, "integrations/", "test/integrations/", "template/")},
	{name: "e2b", needs: []string{"host"}, guards: with(doors, "e2b/", "test/e2b/", "template/")},
	{name: "plain", needs: []string{"host"}, guards: with(kernel, "test/plain/", "test/e2e/", "scripts/plain")},
	{name: "gvisor", guards: kernel},
	{name: "python", needs: []string{"host"}},
	{name: "js", needs: []string{"host"}},
	{name: "scripts", needs: []string{"host"}},
	{name: "mcp", guards: with(doors, "mcp/", "test/mcp/")},
	{name: "fuzz", needs: []string{"host"}, guards: with(doors, "test/fuzz/")},
	{name: "coding", needs: []string{"host"}, guards: with(doors, "coding/", "cli/", "test/coding/")},
	{name: "examples", needs: []string{"host"}, guards: with(doors, "examples/", "test/examples/", "gateway/")},
	{name: "browser", needs: []string{"host"}, guards: with(doors, "console/", "session/", "test/browser/", "test/console/")},
	{name: "engines", needs: []string{"host"}, alone: true},
	{name: "e2e", needs: []string{"host"}, alone: true},
	{name: "hosts", needs: []string{"host"}, alone: true},
	{name: "race", needs: []string{"host"}, alone: true},

	{name: "race-all", needs: []string{"host"}, alone: true, long: true},
	{name: "cluster", needs: []string{"host"}, alone: true, long: true},
	{name: "guards", needs: []string{"host"}, alone: true, long: true},
	{name: "packaging", needs: []string{"host"}, alone: true, long: true},
	{name: "compose", needs: []string{"host"}, alone: true, long: true},
	{name: "kubernetes", alone: true, long: true},
}

func with(paths []string, more ...string) []string { return slices.Concat(paths, more) }

func named(name string) (suite, bool) {
	i := slices.IndexFunc(suites, func(s suite) bool { return s.name == name })
	if i < 0 {
		return suite{}, false
	}
	return suites[i], true
}
