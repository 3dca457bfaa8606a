package e2b

import (
	"fmt"
	"strings"
	"testing"
)

// One project's builds, uploads and output make the server forget only its own.
func TestBuildsAreBoundedPerProject(t *testing.T) {
	var b builds
	b.add(&templateBuild{id: "mine", project: "p"})
	b.addFile("p", "hash", "ctx")
	for i := range 10 * maxFiles {
		b.add(&templateBuild{id: fmt.Sprint("theirs", i), project: "greedy"})
		b.addFile("greedy", fmt.Sprint(i), "ctx")
	}
	if b.all["mine"] == nil || b.file("p", "hash") == "" {
		t.Error("what another project had is forgotten")
	}
	if len(b.all) != 1+maxBuilds || len(b.of["greedy"]) != maxBuilds || len(b.files["greedy"]) > maxFiles {
		t.Errorf("%d builds and %d files are remembered", len(b.all), len(b.files["greedy"]))
	}
	if last := fmt.Sprint("theirs", 10*maxFiles-1); b.all[last] == nil {
		t.Error("the latest is forgotten")
	}
	x := &templateBuild{}
	for range 10 {
		x.log(buildLine{Message: strings.Repeat("x", maxBuildLog/4)})
	}
	if len(x.lines) != 5 || !strings.Contains(x.lines[4].Message, "left out") {
		t.Errorf("the log has %d lines", len(x.lines))
	}
}
