package code

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/bothy-dev/bothy"
)

// The marks between executions are found however the output is split, and characters are not split.
func TestCutter(t *testing.T) {
	const mark = "\x1eMARK\x1e"
	text := "a\x1eb ü\x1eMAR" + mark + "€" + mark + mark + "end\xff\x1eMARK"
	want := "a\x1eb ü\x1eMAR|€||end\uFFFD\x1eMARK"
	for size := 1; size <= len(text); size++ {
		c := &cutter{name: "stdout", mark: []byte(mark)}
		out := make(chan Output, 1000)
		for b := []byte(text); len(b) > 0; {
			n := min(size, len(b))
			if err := c.write(t.Context(), b[:n], out); err != nil {
				t.Fatal(err)
			}
			b = b[n:]
		}
		c.rest(t.Context(), out)
		close(out)
		var got strings.Builder
		for o := range out {
			if o.Stream == "" {
				got.WriteString("|")
			}
			got.WriteString(o.Text)
		}
		if got.String() != want {
			t.Errorf("in pieces of %d: %q, want %q", size, got.String(), want)
		}
	}
}

func TestTextBundle(t *testing.T) {
	var data map[string]json.RawMessage
	text := `{"text/plain":"a","text/html":["<b>","</b>"],"application/json":{"a":[1]},"image/png":"cG5n","x/list":[1,2],"x/null":null}`
	if err := json.Unmarshal([]byte(text), &data); err != nil {
		t.Fatal(err)
	}
	got := textBundle(data)
	want := bothy.CodeOutput{
		"text/plain": "a", "text/html": "<b></b>", "application/json": `{"a":[1]}`, "image/png": "cG5n", "x/list": "[1,2]",
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
	for mime, text := range want {
		if got[mime] != text {
			t.Errorf("%s is %q, want %q", mime, got[mime], text)
		}
	}
}

func TestPlain(t *testing.T) {
	if got := plain("\x1b[31mred\x1b[0m \x1b[38;5;28;01mgreen\x1b[39;00m"); got != "red green" {
		t.Errorf("got %q", got)
	}
}

func TestReadLineIsBounded(t *testing.T) {
	r := bufio.NewReader(strings.NewReader("one\n" + strings.Repeat("x", maxReply+10) + "\ntwo\n"))
	for _, want := range []struct {
		line string
		err  error
	}{{"one\n", nil}, {"", errLongReply}, {"two\n", nil}} {
		line, err := readLine(r)
		if err != want.err || err == nil && string(line) != want.line {
			t.Errorf("got %d bytes, %v; want %q, %v", len(line), err, want.line, want.err)
		}
	}
}

func TestLanguages(t *testing.T) {
	for name, want := range map[string]string{"": "python", "Python": "python", "js": "javascript", "sh": "bash"} {
		if got, err := language(name); err != nil || got != want {
			t.Errorf("%q is %q, %v", name, got, err)
		}
	}
	_, err := language("cobol")
	if bothy.ErrorCode(err) != bothy.CodeUnsupported {
		t.Error(err)
	}
}

// Values of variables reach the shell unchanged, whatever they contain.
func TestShellQuoting(t *testing.T) {
	hostile := map[string]string{
		"A": "'; touch /tmp/owned; '", "B": "$(touch /tmp/owned)\n`x`", "C D": "no name", "1E": "no name", "_f": "\\\"ü",
	}
	script := dialects["bash"].export(hostile) + `printf '%s|%s|%s' "$A" "$B" "$_f"`
	out, err := exec.Command("bash", "-c", script).CombinedOutput()
	if want := hostile["A"] + "|" + hostile["B"] + "|" + hostile["_f"]; err != nil || string(out) != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
}

func TestKernelspecs(t *testing.T) {
	home := t.TempDir()
	dir := home + "/share/jupyter/kernels/"
	for name, text := range map[string]string{
		"r":    `{"argv":["R"],"language":"R"}`,
		"bad":  `{`,
		"none": `{"argv":[],"language":"python"}`,
		"py":   `{"argv":["python","-f","{connection_file}"],"language":"python","interrupt_mode":"message"}`,
	} {
		if err := os.MkdirAll(dir+name, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+name+"/kernel.json", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	id := Identity{Env: []string{"PATH=/nowhere:" + home + "/bin"}}
	k := findKernel("python", id)
	if k == nil || k.Interrupt != "message" {
		t.Fatalf("found %+v", k)
	}
	if argv := kernelArgv(k.Argv, "/run/file"); argv[2] != "/run/file" || k.Argv[2] != "{connection_file}" {
		t.Errorf("arguments %q of %q", argv, k.Argv)
	}
	if k := findKernel("bash", id); k != nil && strings.HasPrefix(strings.Join(k.Argv, " "), "R") {
		t.Errorf("found %+v for bash", k)
	}
}
