//go:build linux && !clientonly

package cli

import (
	"context"
	"testing"

	"github.com/bothy-dev/bothy"
)

type oneTemplate struct {
	bothy.TemplateService
	names []string
}

func (f oneTemplate) Templates(context.Context) ([]*bothy.Template, error) {
	var all []*bothy.Template
	for _, n := range f.names {
		all = append(all, &bothy.Template{Name: n})
	}
	return all, nil
}

type oneSandbox struct {
	bothy.SandboxService
	of string
}

func (f *oneSandbox) Create(_ context.Context, c bothy.SandboxCreate) (*bothy.Sandbox, error) {
	f.of = c.Template
	return &bothy.Sandbox{ID: "sbx"}, nil
}

func (*oneSandbox) Terminate(context.Context, string) error { return nil }

type oneExec struct {
	bothy.ExecService
	code bothy.Code
}

func (f oneExec) Exec(context.Context, string, bothy.ExecRequest) (*bothy.ExecResult, error) {
	if f.code != "" {
		return nil, bothy.Errorf(f.code, "no")
	}
	return &bothy.ExecResult{}, nil
}

// TestDoctorTriesATemplateThatWorks runs with a server that also has images without the needed programs.
func TestDoctorTriesATemplateThatWorks(t *testing.T) {
	for _, c := range []struct {
		names []string
		code  bothy.Code
		of    string
		fails bool
	}{
		{names: []string{"a", bothy.DefaultTemplate}, of: bothy.DefaultTemplate},
		{names: []string{"scratch"}, code: bothy.CodeCommandNotFound, of: "scratch"},
		{names: []string{"a"}, code: bothy.CodeGuest, of: "a", fails: true},
	} {
		boxes := &oneSandbox{}
		s := &session{templates: oneTemplate{names: c.names}, sandboxes: boxes, exec: oneExec{code: c.code}}
		if _, err := startOne(t.Context(), s); boxes.of != c.of || (err != nil) != c.fails {
			t.Errorf("%v: started %q, %v", c.names, boxes.of, err)
		}
	}
}
