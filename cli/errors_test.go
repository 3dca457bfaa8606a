package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

func TestHintsNameCommands(t *testing.T) {
	for hint, want := range map[string]string{
		"List your sandboxes with `bothy ls` or GET /v1/sandboxes.":                                    "List your sandboxes with `bothy ls`.",
		"Make a new one: POST /v1/sandboxes/{id}/links, or `bothy link create`.":                       "Make a new one: `bothy link create`.",
		"Resume it first: POST /v1/sandboxes/sbx1/resume, or create it with auto_resume.":              "Resume it first: bothy resume sbx1, or create it with auto_resume.",
		"Start it again from the beginning: POST /v1/sandboxes/sbx1/restart, or create a new sandbox.": "Start it again from the beginning: bothy restart sbx1, or create a new sandbox.",
		"GET /openapi.json, or open /docs, to see what this call takes.":                               "The command's --help says what it takes.",
	} {
		if got := inCommands(hint); got != want {
			t.Errorf("%q\n became %q\n    want %q", hint, got, want)
		}
	}
}
func TestErrorSaysWhatWasBeingDone(t *testing.T) {
	inner := bothy.Errorf(bothy.CodeConflict, "it is busy").WithHint("Wait.").Because(errors.New("secret cause"))
	inner.Op = "GET /v1"
	detail, hint := describe(fmt.Errorf("the sandbox x was not terminated: %w", inner))
	if detail != "the sandbox x was not terminated: it is busy" || hint != "Wait." {
		t.Errorf("%q, %q", detail, hint)
	}
	if detail, _ := describe(inner); detail != "it is busy" {
		t.Errorf("%q", detail)
	}
}

func TestSandboxThatIsNotWell(t *testing.T) {
	var out strings.Builder
	printSandbox(&out, &bothy.Sandbox{ID: "sbx", State: bothy.StateRunning, Health: &bothy.Health{Status: bothy.HealthNoCwd, Detail: "it is closed"}})
	if got := out.String(); !strings.Contains(got, "no working directory: it is closed\n") {
		t.Error(got)
	}
}

func TestTopHasWhatWasNotMeasuredYet(t *testing.T) {
	var out strings.Builder
	used := 0.5
	printTop(&out, []*bothy.SandboxMetrics{
		{SandboxID: "new"}, {SandboxID: "old", CPUUsed: &used, Metrics: bothy.Metrics{Time: time.Unix(1, 0), MemoryBytes: 1 << 20, MemoryLimitBytes: 2 << 20}},
	}, map[string]string{"new": "web"})
	lines := strings.Split(out.String(), "\n")
	if len(lines) < 3 || !strings.HasPrefix(lines[1], "old") || !strings.Contains(lines[1], "50%") || !strings.HasPrefix(lines[2], "new  web   -") {
		t.Errorf("%q", lines)
	}
}
