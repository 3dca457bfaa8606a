package build

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
)

// doubling is a Dockerfile's lines in which each value is twice the one before.
func doubling(keyword string, times int) string {
	var b strings.Builder
	b.WriteString(keyword + " A=xxxxxxxx\n")
	for range times {
		b.WriteString(keyword + " A=$A$A\n")
	}
	return b.String()
}

func nested(depth int) string {
	return strings.Repeat("${A//a/", depth) + "aa" + strings.Repeat("}", depth)
}

// Values that grow are an error with their line, and take little memory until then.
func TestValuesThatGrow(t *testing.T) {
	w := newWorld(t)
	var many strings.Builder
	for i := range 300 {
		fmt.Fprintf(&many, "ENV V%d=$A\n", i)
	}
	for what, c := range map[string]struct{ file, want string }{
		"arguments before FROM": {doubling("ARG", 30) + "FROM base", "line 16: ARG A: with its variables replaced it is too long"},
		"arguments":             {"FROM base\n" + doubling("ARG", 30), "line 17: ARG: with its variables replaced it is too long"},
		"variables":             {"FROM base\n" + doubling("ENV", 30), "line 17: ENV: with its variables replaced it is too long"},
		"labels":                {"FROM base\n" + doubling("ENV", 14) + "LABEL a=$A$A", "line 17: LABEL: with its variables replaced it is too long"},
		"ports":                 {"FROM base\n" + doubling("ENV", 14) + "EXPOSE $A$A", "line 17: EXPOSE: with its variables replaced it is too long"},
		"paths":                 {"FROM base\n" + doubling("ENV", 14) + "WORKDIR /$A$A", "line 17: WORKDIR: with its variables replaced it is too long"},
		"a stage's base":        {doubling("ARG", 14) + "FROM $A$A", "line 16: FROM: with its variables replaced it is too long"},
		"a platform":            {doubling("ARG", 14) + "FROM --platform=$A$A base", "line 16: FROM: with its variables replaced it is too long"},
		"a heredoc":             {"FROM base\n" + doubling("ENV", 14) + "COPY <<a /a\n" + strings.Repeat("$A", 9) + "\na", "line 17: COPY: with its variables replaced it is too long"},
		"their sum":             {"FROM base\n" + doubling("ENV", 14) + many.String(), "with all variables replaced the Dockerfile is too long"},
		"replacements":          {"FROM base\nENV A=" + strings.Repeat("a", 30_000) + "\nENV B=${A//a/$A}", "line 3: ENV: with its variables replaced it is too long"},
		"nested replacements":   {"FROM base\nENV A=aa\nENV B=" + nested(40), "line 3: ENV: with its variables replaced it is too long"},
		"patterns":              {"FROM base\nENV A=" + strings.Repeat("a", 30_000) + "\nENV B=${A%%*" + strings.Repeat("a", 30_000) + "}", "line 3: ENV: with its variables replaced it is too long"},
		"ports of one line":     {"FROM base\n" + doubling("ENV", 1) + "EXPOSE " + strings.Repeat("1 ", maxItems+1), "line 4: it has 2001 words, more than 2000"},
		"steps":                 {"FROM base\n" + strings.Repeat("USER a\n", maxSteps), "10001 instructions, more than 10000"},
		"stages":                {strings.Repeat("FROM base\n", maxStages+1), "201 stages, more than 200"},
		"an error's text":       {"FROM base\nENV A=${A:?" + strings.Repeat("a", 50_000) + "}", "line 2: "},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b, err := w.StartBuild(w.me(), bothy.BuildRequest{Name: "made", Dockerfile: c.file})
		if err == nil {
			r := w.wait(w.me(), b.ID)
			err = &bothy.Error{Code: r.Code, Detail: r.Error}
		}
		runtime.ReadMemStats(&after)
		if bothy.ErrorCode(err) != bothy.CodeInvalid || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 2*maxRefusal {
			t.Errorf("%s: %.200v", what, err)
		}
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 500 {
			t.Errorf("%s took %d MB", what, took)
		}
	}
}

// A heredoc of very many lines is refused before it is parsed, which would take minutes.
func TestHeredocsOfManyLines(t *testing.T) {
	began := time.Now()
	for lines, want := range map[int]bothy.Code{9_000: "", 500_000: bothy.CodeTooLarge} {
		_, err := Dockerfile(strings.NewReader("FROM base\nCOPY <<f /f\n"+strings.Repeat("x\n", lines)+"f"), ReadOptions{})
		if err == nil && want != "" || err != nil && bothy.ErrorCode(err) != want {
			t.Errorf("%d lines: %v", lines, err)
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestWarningsAreFew(t *testing.T) {
	recipe, err := Dockerfile(strings.NewReader(strings.Repeat("ARG TOKEN\n", 1000)+"FROM base"), ReadOptions{})
	if err != nil || len(recipe.Warnings) != maxWarnings {
		t.Errorf("%d warnings, %v", len(recipe.Warnings), err)
	}
}

// What is usual goes on working.
func TestReplacementsInWords(t *testing.T) {
	w := newWorld(t)
	r := w.build(bothy.BuildRequest{Args: map[string]string{"V": "1.22.333"}, Dockerfile: `FROM base
ARG V
ENV LONG=` + strings.Repeat("/usr/local/share/bin:", 40) + `
ENV A=${V//./_} B=${V%.*} C=${V##*.} D=${NONE:-https://example.org/a/b/c/d/${V}/${V%%.*}} E=${V/./${V//3/4}} F="${LONG//:/ }"
ENV G=${V//./_}-${V//./-}-${V//2/3}-${V//1/0}`})
	for name, want := range map[string]string{
		"A": "1_22_333", "B": "1.22", "C": "333", "D": "https://example.org/a/b/c/d/1.22.333/1", "E": "11.22.44422.333",
		"F": strings.Repeat("/usr/local/share/bin ", 40), "G": "1_22_333-1-22-333-1.33.333-0.22.333",
	} {
		if r.template == nil || r.template.Env[name] != want {
			t.Errorf("%s: %s: %+v", name, r.Error, r.template)
		}
	}
}
