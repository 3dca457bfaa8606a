package mcp_test

import (
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/api/apitest"
)

func TestTemplates(t *testing.T) {
	d := open(t, apitest.New())
	s := d.speak(revisions[0])
	var b bothy.Build
	must(t, s, "build_template", m{"name": "tools", "dockerfile": "FROM python-3.12\nRUN true", "start": m{"command": "serve", "ready": m{"port": 8000}}}, &b)
	var got struct {
		Build bothy.Build
		Log   []string
	}
	for end := time.Now().Add(time.Minute); !got.Build.State.Ended() && time.Now().Before(end); time.Sleep(time.Millisecond) {
		must(t, s, "get_build", m{"build_id": b.ID}, &got)
	}
	if got.Build.State != bothy.BuildSucceeded || len(got.Log) == 0 {
		t.Errorf("built %+v", got)
	}
	var sb bothy.Sandbox
	must(t, s, "create_sandbox", m{"template": "tools"}, &sb)
	var made bothy.Template
	must(t, s, "create_template", m{"sandbox_id": sb.ID, "name": "mine", "description": "by hand"}, &made)
	if made.Name != "mine" || made.Description != "by hand" {
		t.Errorf("made %+v", made)
	}
	var list struct{ Items []bothy.Template }
	must(t, s, "list_templates", m{}, &list)
	var names []string
	for _, one := range list.Items {
		names = append(names, one.Name)
	}
	if all := strings.Join(names, " "); !strings.Contains(all, "mine") || !strings.Contains(all, "tools") {
		t.Errorf("there is %s", all)
	}
}
