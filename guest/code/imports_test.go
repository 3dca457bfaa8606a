package code

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Import statements work in JavaScript code, even repeatedly, and text that only looks like one is not
// changed.
func TestJavaScriptImports(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("this host has no node")
	}
	dir := t.TempDir()
	module := filepath.Join(dir, "m.mjs")
	if err := os.WriteFile(module, []byte("export default 1; export const two = 2, three = 3;"), 0o600); err != nil {
		t.Fatal(err)
	}
	in, ask, err1 := os.Pipe()
	answers, out, err2 := os.Pipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	cmd := exec.Command(node, "driver/driver.js", "mark")
	cmd.ExtraFiles = []*os.File{in, out}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	out.Close()
	t.Cleanup(func() {
		ask.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	_ = answers.SetReadDeadline(time.Now().Add(time.Minute))
	lines := bufio.NewScanner(answers)
	from := ` from "` + module + `";`
	for _, c := range []struct{ code, want string }{
		{"import path from 'node:path'; import {sep as s} from 'node:path'\npath.sep + s", "'//'"},
		{"import path from 'node:path'; path.sep", "'/'"},
		{"path.sep", "'/'"},
		{"import one, {\n  two,\n  three as drei,\n}" + from + " one + two + drei", "6"},
		{"import * as all" + from + " all.two", "2"},
		{"import d, * as more" + from + " d + more.three", "4"},
		{"import '" + module + "'\n7", "7"},
		{"await 0\nimport x" + from + "\n`\nimport y from 'z'\n` + x", `"\nimport y from 'z'\n1"`},
	} {
		line, _ := json.Marshal(map[string]any{"code": c.code})
		if _, err := ask.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Data  map[string]any
			Error *struct{ Name, Value string }
			End   bool
		}
		shown := ""
		for !got.End && lines.Scan() {
			if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if text, ok := got.Data["text/plain"].(string); ok {
				shown = text
			}
		}
		if got.Error != nil {
			t.Errorf("%q: %+v", c.code, *got.Error)
		} else if shown != c.want {
			t.Errorf("%q shows %q, want %q", c.code, shown, c.want)
		}
	}
}
