package build

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// noText leaves out what is for people.
var noText = cmpopts.IgnoreFields(Step{}, "Text")

func ptr[T any](v T) *T { return &v }

// one is a recipe of one stage on debian-12, whose steps begin in line 2.
func one(steps ...Step) []Stage {
	return []Stage{{From: "debian-12", Line: 1, Steps: steps}}
}

func TestDockerfile(t *testing.T) {
	tests := []struct {
		name, text string
		opts       ReadOptions
		want       []Stage
	}{
		{name: "nothing but FROM", text: "", want: one()},
		{name: "run", text: "RUN apt-get update && echo $HOME", want: one(Step{Kind: Run, Line: 2, Args: []string{"apt-get update && echo $HOME"}, UseShell: true})},
		{name: "run, exec form", text: `RUN ["ls", "-l"]`, want: one(Step{Kind: Run, Line: 2, Args: []string{"ls", "-l"}})},
		{name: "run, several lines", text: "RUN a \\\n  # why\n  && b", want: one(Step{Kind: Run, Line: 2, Args: []string{"a   && b"}, UseShell: true})},
		{name: "run, heredoc", text: "RUN <<EOF\necho a\nEOF", want: one(Step{Kind: Run, Line: 2, Args: []string{"<<EOF"}, UseShell: true, Files: []File{{Name: "EOF", Data: "echo a\n"}}})},
		{name: "run, heredoc with tabs", text: "RUN python3 <<-EOF\n\tprint(1)\nEOF", want: one(Step{Kind: Run, Line: 2, Args: []string{"python3 <<-EOF"}, UseShell: true, Files: []File{{Name: "EOF", Data: "\tprint(1)\n", Chomp: true}}})},
		{name: "run, no network", text: "RUN --network=none true", want: one(Step{Kind: Run, Line: 2, Args: []string{"true"}, UseShell: true, Network: "none"})},
		{name: "run, cache", text: "RUN --mount=type=cache,target=/c,id=x,sharing=locked true", want: one(Step{Kind: Run, Line: 2, Args: []string{"true"}, UseShell: true, Mounts: []Mount{{Type: "cache", ID: "x", Target: "/c", Sharing: "locked"}}})},
		{name: "run, secret", text: "RUN --mount=type=secret,id=key,required=true,mode=0400,uid=7 true", want: one(Step{Kind: Run, Line: 2, Args: []string{"true"}, UseShell: true, Mounts: []Mount{{Type: "secret", ID: "key", ReadOnly: true, Required: true, Mode: 0o400, UID: 7}}})},
		{name: "run, tmpfs", text: "RUN --mount=type=tmpfs,target=/t,size=1m true", want: one(Step{Kind: Run, Line: 2, Args: []string{"true"}, UseShell: true, Mounts: []Mount{{Type: "tmpfs", Target: "/t", Size: 1 << 20}}})},
		{name: "run, bind", text: "RUN --mount=type=bind,source=a,target=/a true", want: one(Step{Kind: Run, Line: 2, Args: []string{"true"}, UseShell: true, Mounts: []Mount{{Type: "bind", Source: "a", Target: "/a", ReadOnly: true}}})},
		{name: "copy", text: "COPY --chown=1:2 --chmod=0640 --link a* b /d/", want: one(Step{Kind: Copy, Line: 2, Copy: &Files{Sources: []string{"a*", "b"}, Dest: "/d/", Chown: "1:2", Chmod: "0640", Link: true}})},
		{name: "copy, some of it", text: "COPY --parents --exclude=*.md --exclude=x a /d/", want: one(Step{Kind: Copy, Line: 2, Copy: &Files{Sources: []string{"a"}, Dest: "/d/", Exclude: []string{"*.md", "x"}, Parents: true}})},
		{name: "onbuild", text: "ONBUILD COPY a b", want: one(Step{Kind: Onbuild, Line: 2, Args: []string{"COPY a b"}})},
		{name: "copy, JSON", text: `COPY ["a b", "/d"]`, want: one(Step{Kind: Copy, Line: 2, Copy: &Files{Sources: []string{"a b"}, Dest: "/d"}})},
		{name: "copy, heredoc", text: "COPY <<EOF /f\nhi $X\nEOF", want: one(Step{Kind: Copy, Line: 2, Copy: &Files{Dest: "/f", Inline: []File{{Name: "EOF", Data: "hi $X\n", Expand: true}}}})},
		{name: "copy, quoted heredoc", text: "COPY <<'EOF' /f\nhi $X\nEOF", want: one(Step{Kind: Copy, Line: 2, Copy: &Files{Dest: "/f", Inline: []File{{Name: "EOF", Data: "hi $X\n"}}}})},
		{name: "copy from an image", text: "COPY --from=alpine:3.20 /a /b", want: one(Step{Kind: Copy, Line: 2, Copy: &Files{Sources: []string{"/a"}, Dest: "/b", From: "alpine:3.20"}})},
		{name: "add", text: "ADD a.tar.gz /d", want: one(Step{Kind: Add, Line: 2, Copy: &Files{Sources: []string{"a.tar.gz"}, Dest: "/d"}})},
		{name: "env", text: `ENV A=1 B="x $A"`, want: one(Step{Kind: Env, Line: 2, Pairs: []Pair{{"A", ptr("1")}, {"B", ptr(`"x $A"`)}}})},
		{name: "env, old form", text: `ENV A b c`, want: one(Step{Kind: Env, Line: 2, Pairs: []Pair{{"A", ptr("b c")}}})},
		{name: "label", text: `LABEL a.b=c`, want: one(Step{Kind: Label, Line: 2, Pairs: []Pair{{"a.b", ptr("c")}}})},
		{name: "arg", text: "ARG A\nARG B=2", want: one(Step{Kind: Arg, Line: 2, Pairs: []Pair{{"A", nil}}}, Step{Kind: Arg, Line: 3, Pairs: []Pair{{"B", ptr("2")}}})},
		{name: "arg, given", text: "ARG A=1", opts: ReadOptions{Args: map[string]string{"A": "9"}}, want: one(Step{Kind: Arg, Line: 2, Pairs: []Pair{{"A", ptr("9")}}})},
		{name: "workdir and user", text: "WORKDIR a\nUSER app:app", want: one(Step{Kind: Workdir, Line: 2, Args: []string{"a"}}, Step{Kind: User, Line: 3, Args: []string{"app:app"}})},
		{name: "expose and volume", text: "EXPOSE 80 53/udp\nVOLUME /a /b", want: one(Step{Kind: Expose, Line: 2, Args: []string{"53/udp", "80"}}, Step{Kind: Volume, Line: 3, Args: []string{"/a", "/b"}})},
		{name: "entrypoint and cmd", text: "ENTRYPOINT [\"a\"]\nCMD b c", want: one(Step{Kind: Entrypoint, Line: 2, Args: []string{"a"}}, Step{Kind: Cmd, Line: 3, Args: []string{"b c"}, UseShell: true})},
		{name: "shell and stopsignal", text: "SHELL [\"/bin/bash\", \"-c\"]\nSTOPSIGNAL SIGINT", want: one(Step{Kind: Shell, Line: 2, Args: []string{"/bin/bash", "-c"}}, Step{Kind: StopSignal, Line: 3, Args: []string{"SIGINT"}})},
		{name: "healthcheck", text: "HEALTHCHECK --interval=5s CMD true", want: one(Step{Kind: Healthcheck, Line: 2, Args: []string{"CMD-SHELL", "true"}, Health: map[string]string{"interval": "5s"}})},
		{name: "healthcheck, none", text: "HEALTHCHECK NONE", want: one(Step{Kind: Healthcheck, Line: 2, Args: []string{"NONE"}, Health: map[string]string{}})},
		{name: "maintainer", text: "MAINTAINER me", want: one(Step{Kind: Label, Line: 2, Pairs: []Pair{{"maintainer", ptr("me")}}})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Dockerfile(strings.NewReader("FROM debian-12\n"+tt.text+"\n"), tt.opts)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got.Stages, noText); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const severalStages = `ARG BASE=debian-12
FROM $BASE AS tools
RUN make
FROM scratch AS unused
COPY x /x
FROM tools AS test
ARG BASE
FROM node-22
COPY --from=TOOLS /a /a
RUN --mount=from=2,target=/t true
`

func TestStages(t *testing.T) {
	r, err := Dockerfile(strings.NewReader(severalStages), ReadOptions{Args: map[string]string{"BASE": "python-3.12"}})
	if err != nil {
		t.Fatal(err)
	}
	want := []Stage{
		{Name: "tools", From: "python-3.12", Line: 2, Steps: []Step{{Kind: Run, Line: 3, Args: []string{"make"}, UseShell: true}}},
		{Name: "test", FromStage: ptr(0), Line: 6, Steps: []Step{{Kind: Arg, Line: 7, Pairs: []Pair{{"BASE", ptr("python-3.12")}}}}},
		{From: "node-22", Line: 8, Steps: []Step{
			{Kind: Copy, Line: 9, Copy: &Files{Sources: []string{"/a"}, Dest: "/a", From: "0"}},
			{Kind: Run, Line: 10, Args: []string{"true"}, UseShell: true, Mounts: []Mount{{Type: "bind", From: "1", Target: "/t", ReadOnly: true}}},
		}},
	}
	if diff := cmp.Diff(want, r.Stages, noText); diff != "" {
		t.Error(diff)
	}
	r, err = Dockerfile(strings.NewReader(severalStages), ReadOptions{Target: "unused"})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Stages) != 1 || r.Stages[0].From != "scratch" {
		t.Errorf("target unused has the stages %+v", r.Stages)
	}
}

func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "no instructions",
		"RUN true":                            "no build stage",
		"FROM a\nFETCH b":                     "line 2",
		"FROM a\nONBUILD FROM b":              "line 2: FROM isn't allowed as an ONBUILD trigger",
		"FROM a\nONBUILD FETCH b":             "line 2: ONBUILD FETCH b",
		"FROM a\nONBUILD COPY --from=0 b b":   "line 2: ONBUILD COPY --from=0 b b: it cannot copy from a stage",
		"FROM a\nADD --checksum=sha256:0 b b": "line 2: ADD does not support",
		"FROM a\nCOPY --from=b /x /x\nFROM a AS b\nRUN --mount=from=c,target=/c c\nFROM a AS c": "line 2: the stage b begins later, on line 3",
		"FROM a AS b\nCOPY --from=b /x /x":      "line 2: a stage cannot copy from itself",
		"FROM --platform=linux/arm64 a":         "line 1: FROM --platform",
		"FROM $X":                               "line 1: FROM $X is empty",
		"FROM a\nRUN --network=host b":          "line 2: RUN --network=host",
		"FROM a\nRUN --mount=type=ssh b":        "line 2: RUN --mount=type=ssh",
		"FROM a\nRUN --mount=type=odd b":        "line 2",
		"FROM a\nADD https://example.com/x /x":  "line 2: ADD https://example.com/x",
		"FROM a\nCOPY --from=0 /x /x":           "line 2: there is no stage 0",
		"FROM a\nCOPY x":                        "line 2",
		"FROM a\n\nRUN --mount=type=cache true": "line 3",
	} {
		_, err := Dockerfile(strings.NewReader(text), ReadOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	_, err := Dockerfile(strings.NewReader("FROM a"), ReadOptions{Target: "b"})
	if err == nil || !strings.Contains(err.Error(), "no stage b") {
		t.Errorf("unknown target: %v", err)
	}
}

func TestSecretInArgWarns(t *testing.T) {
	r, err := Dockerfile(strings.NewReader("ARG NPM_TOKEN\nFROM a\nARG DB_PASSWORD=x\nARG VERSION"), ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Warnings) != 2 || !strings.Contains(r.Warnings[1], "line 3: the argument DB_PASSWORD") {
		t.Errorf("warnings: %q", r.Warnings)
	}
}
