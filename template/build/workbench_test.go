package build

import (
	"context"
	"testing"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

func TestCommandsShareASandboxWhileNothingIsLeftInIt(t *testing.T) {
	for name, c := range map[string]struct {
		middle string
		want   int // sandboxes
	}{
		"nothing":                   {"", 1},
		"settings":                  {"ENV A=1\nUSER app\nLABEL a=b\nARG X=1", 1},
		"another command":           {"RUN write /c 3", 1},
		"files":                     {"COPY f /f", 2},
		"a folder":                  {"WORKDIR /new", 2},
		"another network":           {"RUN --network=none write /c 3", 3},
		"a secret":                  {"RUN --mount=type=secret,id=k write /c 3", 3},
		"a cache":                   {"RUN --mount=type=cache,target=/cache write /c 3", 3},
		"a script":                  {"RUN <<X\n#!/bin/none\nX", 3},
		"a process that stays":      {"RUN daemon", 2},
		"a host's name":             {"RUN write /etc/hosts x", 2},
		"certificates":              {"RUN write /etc/ssl/certs/ca-certificates.crt x", 2},
		"something that is no file": {"RUN write /dev/shm/x 1", 2},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id := w.upload("f", "F")
			r := w.build(bothy.BuildRequest{
				ContextID: id, Secrets: []bothy.BuildSecret{{ID: "k", Value: "word"}},
				Dockerfile: "FROM base\nRUN write /a 1 && write /old new\n" + c.middle + "\nRUN show /a && remove /a && write /b 2\nRUN show /b",
			})
			if name == "a script" { // which this world cannot execute
				if len(w.boxes) != 2 || w.left() != 0 {
					t.Errorf("%d sandboxes, of which %d are left", len(w.boxes), w.left())
				}
				return
			}
			if r.State != bothy.BuildSucceeded || r.text("a") != "none" || r.text("b") != "2" || r.text("old") != "new" {
				t.Fatalf("%s\n%s", r.Error, r.log)
			}
			if len(w.boxes) != c.want || w.left() != 0 {
				t.Errorf("%d sandboxes and not %d, of which %d are left", len(w.boxes), c.want, w.left())
			}
		})
	}
}

func TestCommandsInVirtualMachinesShareNone(t *testing.T) {
	w := newWorld(t)
	w.build(bothy.BuildRequest{Engine: "vm", Dockerfile: "FROM base\nRUN write /a 1\nRUN show /a"})
	if len(w.boxes) != 2 || w.left() != 0 {
		t.Errorf("%d sandboxes, of which %d are left", len(w.boxes), w.left())
	}
}

func TestSandboxOfAStageEndsWithIt(t *testing.T) {
	w := newWorld(t)
	for _, file := range []string{
		"FROM base\nRUN write /a 1\nRUN fail",
		"FROM base\nRUN write /a 1\nCOPY missing /x",
		"FROM base AS one\nRUN write /a 1\nRUN write /a 2\nFROM base\nRUN write /b 1\nCOPY --from=one /a /a\nRUN show /a",
	} {
		if r := w.build(bothy.BuildRequest{Dockerfile: file, ContextID: w.upload("f", "x")}); w.left() != 0 {
			t.Errorf("%q: %s: %d sandboxes are left", file, r.State, w.left())
		}
	}
}

func TestWhatASharedSandboxMakesIsKeptStepByStep(t *testing.T) {
	w := newWorld(t)
	file := "FROM base\nRUN write /a 1\nRUN write /a 2 && write /b 2\nRUN remove /b && write /c 3"
	first := w.build(bothy.BuildRequest{Dockerfile: file})
	w.commands()
	again := w.build(bothy.BuildRequest{Dockerfile: file + "\nRUN show /a"})
	if got := w.commands(); len(got) != 1 || again.text("a") != "2" || again.text("b") != "none" || again.text("c") != "3" {
		t.Errorf("ran %q: %s", got, again.log)
	}
	if other := w.build(bothy.BuildRequest{Dockerfile: "FROM base\nRUN write /a 1\nRUN write /a 2 && write /b 2"}); other.text("b") != "2" || other.Digest == first.Digest {
		t.Errorf("the step before the last has made %q", other.text("b"))
	}
}

func TestBuildsStayWithinThePlan(t *testing.T) {
	w := newWorld(t)
	w.Builder.Close()
	one := bothy.Plan{Name: "small", Sandboxes: new(1), MemoryMB: 512, DiskMB: 1024, TimeoutSeconds: 300}
	w.o.Plan = func(context.Context, string) (bothy.Plan, error) { return one, nil }
	w.open()
	w.refuse = func(context.Context, *store.Template) error {
		if n := w.left(); n > 0 {
			t.Errorf("a sandbox is asked for while there is one")
		}
		return nil
	}
	const file = "FROM base AS one\nRUN write /a 1\nRUN write /a 2\nFROM base AS two\nRUN write /b 1\nRUN --mount=type=cache,target=/c write /b 2\nFROM base\n" +
		"COPY --from=one /a /a\nRUN --mount=type=bind,from=two,target=/two write /c 3"
	other, err := w.StartBuild(w.me(), bothy.BuildRequest{Name: "other", Dockerfile: "FROM base\nRUN write /x 1\nRUN write /y 1", Start: &bothy.TemplateStart{Command: "serve"}})
	if err != nil {
		t.Fatal(err)
	}
	if r := w.build(bothy.BuildRequest{Dockerfile: file}); r.text("a") != "2" || r.text("c") != "3" {
		t.Errorf("%s\n%s", r.Error, r.log)
	}
	w.wait(w.me(), other.ID)
	if w.left() != 0 || len(w.turns.taken) != 0 {
		t.Errorf("%d sandboxes are left, and %v are counted", w.left(), w.turns.taken)
	}
	for id, b := range w.boxes {
		if b.req.DiskMB > 1024 || b.req.MemoryMB > 512 || *b.req.TimeoutSeconds > 300 {
			t.Errorf("%s asked for %+v, %d s", id, b.req, *b.req.TimeoutSeconds)
		}
	}
}
