package e2b

import (
	"fmt"
	"slices"
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

// A copied pattern was resolved by the client: the upload holds its matches, and they go into a
// folder.
func TestCopiedPatterns(t *testing.T) {
	d := New(Services{}, Config{})
	d.builds.addFile("p", "ab", "ctx")
	for source, want := range map[string]string{
		"folder/*": `["folder/","to/"]`, "a/b/*.txt": `["a/b/","to/"]`, "*.txt": `[".","to/"]`, "f?/x": `[".","to/"]`,
		"folder": `["folder","to"]`, "./a.txt": `["./a.txt","to"]`,
	} {
		x := translation{d: d, project: "p", user: "user", contexts: map[string]string{}}
		err := x.step(buildStep{Type: "COPY", Args: []string{source, "to"}, FilesHash: "ab"})
		if got := strings.TrimSpace(x.text.String()); err != nil || !strings.HasSuffix(got, " "+want) {
			t.Errorf("%s: %s, %v; want %s", source, got, err, want)
		}
	}
}

// The step of a failed build is the client's own, by its number.
func TestStepOfAFailedBuild(t *testing.T) {
	d := New(Services{}, Config{})
	b := &templateBuild{name: "t", tags: []string{"default"}}
	if _, err := d.translate(t.Context(), b, buildStart{FromImage: "debian", Steps: []buildStep{
		{Type: "RUN", Args: []string{"true"}}, {Type: "RUN", Args: []string{"true", "root"}}, {Type: "WORKDIR", Args: []string{"/x"}},
	}}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for done := range 8 { // of USER, WORKDIR, RUN, USER, RUN, USER, WORKDIR
		got = append(got, stepOf(b.ends, done))
	}
	if want := []string{"base", "base", "1", "2", "2", "2", "3", "finalize"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
