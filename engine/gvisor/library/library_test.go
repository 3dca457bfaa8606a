package library

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		module debug.Module
		want   Library
		says   string
	}{
		{debug.Module{Path: Module, Version: "v1"}, Library{Version: "v1"}, "plain gVisor v1"},
		{debug.Module{Path: Module, Version: "v1", Replace: &debug.Module{Path: "./bin/gvisor"}}, Library{Version: "v1", Patched: true}, "gVisor v1 with the patches of Bothy"},
	} {
		got, found := of(&debug.BuildInfo{Deps: []*debug.Module{{Path: "example.org/a", Version: "v9"}, &c.module}})
		if !found || got != c.want || got.String() != c.says {
			t.Errorf("%+v: %+v, %q, %v", c.module, got, got, found)
		}
	}
	if _, found := of(&debug.BuildInfo{}); found {
		t.Error("it is found in a program without it")
	}
}

func TestNoGoProgramIsRefused(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/bin/sh": "Go", own: "not built from gVisor", "/nowhere": "no such file"} {
		if _, err := Of(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
