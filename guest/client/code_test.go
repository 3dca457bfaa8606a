package client_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/client"
)

// program skips the test when a program that the language needs is not installed.
func program(t *testing.T, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skip(err)
	}
}

// plainPath sets a PATH of links to the interpreters, so that Jupyter kernels installed on this
// machine are not found.
func plainPath(t *testing.T, g *guest) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "programs")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"python3", "node", "bash", "sh", "sleep", "cat", "od"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if name == "python3" { // the real one: a shim would need its own PATH
			if out, err := exec.Command(path, "-c", "import sys; print(sys.executable)").Output(); err == nil {
				path = strings.TrimSpace(string(out))
			}
		}
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	adoptWith(t, g, map[string]string{"PATH": bin, "HOME": t.TempDir()})
}

func adoptWith(t *testing.T, g *guest, env map[string]string) {
	t.Helper()
	if _, err := g.Adopt(t.Context(), client.Identity{Key: testKey, Env: env}); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, g *guest, req bothy.CodeRequest) *bothy.CodeResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := g.RunCode(ctx, req)
	if err != nil {
		t.Fatalf("run %q: %v", req.Code, err)
	}
	return res
}

// A context that was started in a template serves the sandbox made from it; one that was used
// keeps its variables.
func TestContextsAreAdopted(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.language, func(t *testing.T) {
			program(t, map[string]string{"python": "python3", "javascript": "node", "bash": "bash"}[d.language])
			g := adopted(t)
			plainPath(t, g)
			run(t, g, bothy.CodeRequest{Language: d.language})
			for _, greeting := range []string{"warm", "used"} {
				adoptWith(t, g, map[string]string{"GREETING": greeting})
				if res := run(t, g, bothy.CodeRequest{Language: d.language, Code: d.env}); res.Stdout != greeting+"\n" {
					t.Errorf("the environment of a %s context: %+v", greeting, res)
				}
				if greeting == "warm" {
					run(t, g, bothy.CodeRequest{Language: d.language, Code: d.set})
				}
			}
			if res := run(t, g, bothy.CodeRequest{Language: d.language, Code: d.get}); res.Stdout != "42\n" {
				t.Errorf("the context was started again: %+v", res)
			}
			if list, err := g.Processes(t.Context()); err != nil || len(list) != 0 {
				t.Errorf("contexts are among the processes: %+v, %v", list, err)
			}
			if d.language != "python" {
				return
			}
			run(t, g, bothy.CodeRequest{Code: "import random; random.seed(1)"})
			adoptWith(t, g, nil)
			if res := run(t, g, bothy.CodeRequest{Code: "random.random()"}); len(res.Results) != 1 || res.Results[0]["text/plain"] != "0.13436424411240122" {
				t.Errorf("the seed that the user set was lost: %+v", res)
			}
		})
	}
}

// dialect holds the code snippets of one language.
type dialect struct {
	language           string
	set, get           string // set and read a variable
	print, printErr    string
	fail, failName     string
	sleep, spin        string
	env                string // shows the variable GREETING
	die                string
	subprocess         string // prints sub
	value, valueText   string
	syntaxError        string
	interruptedByError string
}

var dialects = []dialect{
	{
		language: "python", set: "x = 41", get: "print(x + 1)", print: "print('out ü')", printErr: "import sys; print('err', file=sys.stderr)",
		fail: "def f():\n    raise ValueError('bad')\nf()", failName: "ValueError", sleep: "import time; time.sleep(300)", spin: "while True: pass",
		env: "import os; print(os.environ.get('GREETING'))", die: "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
		subprocess: "import os; os.system('echo sub')\nNone", value: "[1, 2]", valueText: "[1, 2]", syntaxError: "def (", interruptedByError: "KeyboardInterrupt",
	},
	{
		language: "javascript", set: "let x = 41", get: "console.log(x + 1)", print: "console.log('out ü')", printErr: "console.error('err')",
		fail: "function f() { throw new RangeError('bad') }\nf()", failName: "RangeError", sleep: "await new Promise((r) => setTimeout(r, 300000))", spin: "while (true);",
		env: "console.log(process.env.GREETING ?? 'None')", die: "process.kill(process.pid, 'SIGKILL'); await new Promise(() => {})",
		subprocess: "require('child_process').execSync('echo sub', { stdio: 'inherit' }); undefined", value: "[1, 2]", valueText: "[ 1, 2 ]", syntaxError: "function (", interruptedByError: "KeyboardInterrupt",
	},
	{
		language: "bash", set: "x=41", get: "echo $((x + 1))", print: "echo 'out ü'", printErr: "echo err >&2",
		fail: "(exit 3)", failName: "ExitStatus", sleep: "sleep 300; echo NOT", spin: "while :; do :; done; echo NOT",
		env: "echo ${GREETING-None}", die: "kill -9 $$", subprocess: "sh -c 'echo sub'", syntaxError: "if (", interruptedByError: "KeyboardInterrupt",
	},
}

func TestCode(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.language, func(t *testing.T) {
			program(t, map[string]string{"python": "python3", "javascript": "node", "bash": "bash"}[d.language])
			g := adopted(t)
			plainPath(t, g)
			checkLanguage(t, g, d)
		})
	}
}

// TestJupyter repeats the checks with a real kernel, if this machine has one.
func TestJupyter(t *testing.T) {
	python := os.Getenv("BOTHY_TEST_IPYKERNEL")
	if python == "" {
		t.Skip("BOTHY_TEST_IPYKERNEL does not name a Python with ipykernel")
	}
	g := adopted(t)
	adoptWith(t, g, map[string]string{"PATH": filepath.Dir(python) + ":" + os.Getenv("PATH"), "HOME": t.TempDir()})
	checkLanguage(t, g, dialects[0])
	res := run(t, g, bothy.CodeRequest{Code: "get_ipython().kernel.__class__.__name__"})
	if len(res.Results) != 1 || res.Results[0]["text/plain"] != "'IPythonKernel'" {
		t.Errorf("no kernel ran the code: %+v", res)
	}
	res = run(t, g, bothy.CodeRequest{Code: "from IPython.display import display, HTML, JSON\ndisplay(HTML('<b>x</b>'))\nJSON({'a': [1]})"})
	if len(res.Results) != 2 || res.Results[0]["text/html"] != "<b>x</b>" || res.Results[1]["application/json"] != `{"a":[1]}` && res.Results[1]["application/json"] != `{"a": [1]}` {
		t.Errorf("results %+v", res)
	}
	// The thread that reads file descriptor 1 lags behind.
	run(t, g, bothy.CodeRequest{Code: strings.Join([]string{
		"import os, sys, threading, time",
		"stream = type(sys.stdout)",
		"asked = stream._is_master_process  # before anything is written",
		"def late(self):",
		"    threading.current_thread() is self.watch_fd_thread and time.sleep(0.3)",
		"    return asked(self)",
		"stream._is_master_process = late",
	}, "\n")})
	for i := range 5 {
		text := fmt.Sprintf("%d ü\n", i)
		res = run(t, g, bothy.CodeRequest{Code: fmt.Sprintf("os.write(1, %q.encode()) and None", text)})
		if res.Error != nil || res.Stdout != text {
			t.Errorf("output written just before the end: %+v", res)
		}
	}
	run(t, g, bothy.CodeRequest{Code: "stream._is_master_process = asked"})
	res = run(t, g, bothy.CodeRequest{Code: "os.fork() or (sys.stdout.flush(), os._exit(0))\nos.wait() and None"})
	if res.Error != nil {
		t.Errorf("output of a forked child: %+v", res)
	}
	res = run(t, g, bothy.CodeRequest{Code: "for i in range(300000): print(i)"})
	if res.Error != nil || !strings.HasSuffix(res.Stdout, "\n299999\n") || res.Truncated {
		t.Errorf("large output: %d bytes, truncated %v, %v", len(res.Stdout), res.Truncated, res.Error)
	}
}

func checkLanguage(t *testing.T, g *guest, d dialect) {
	req := func(code string) bothy.CodeRequest { return bothy.CodeRequest{Code: code, Language: d.language} }
	if res := run(t, g, req("")); res.ContextID != d.language || res.ExecutionCount != 0 {
		t.Errorf("warm-up: %+v", res)
	}
	if res := run(t, g, req(d.set)); res.Error != nil || res.Stdout+res.Stderr != "" || res.ContextID != d.language || res.DurationMS > 60_000 {
		t.Errorf("set: %+v, %+v", res, res.Error)
	}
	if res := run(t, g, req(d.get)); res.Error != nil || res.Stdout != "42\n" {
		t.Errorf("get: %+v, %+v", res, res.Error)
	}
	if res := run(t, g, req(d.print)); res.Stdout != "out ü\n" || res.Stderr != "" {
		t.Errorf("print: %+v", res)
	}
	if res := run(t, g, req(d.printErr)); res.Stderr != "err\n" || res.Stdout != "" {
		t.Errorf("print to stderr: %+v", res)
	}
	if res := run(t, g, req(d.subprocess)); res.Stdout != "sub\n" || res.Error != nil {
		t.Errorf("subprocess: %+v", res)
	}
	if d.value != "" {
		if res := run(t, g, req(d.value)); len(res.Results) != 1 || res.Results[0]["text/plain"] != d.valueText {
			t.Errorf("value: %+v", res)
		}
	}
	res := run(t, g, req(d.fail))
	if res.Error == nil || res.Error.Name != d.failName {
		t.Errorf("fail: %+v", res.Error)
	} else if d.language != "bash" && (res.Error.Value != "bad" || !strings.Contains(res.Error.Traceback, "f")) {
		t.Errorf("fail: %+v", res.Error)
	}
	if res := run(t, g, req(d.syntaxError)); res.Error == nil {
		t.Errorf("syntax error: %+v", res)
	}
	checkEnv(t, g, d)
	checkInterrupts(t, g, d)
	if res := run(t, g, req(d.get)); res.Stdout != "42\n" {
		t.Errorf("the variable was lost: %+v", res)
	}
	checkContexts(t, g, d)
	res = run(t, g, req(d.die))
	if res.Error == nil || res.Error.Name != "KernelDied" {
		t.Errorf("exit of the interpreter: %+v, %+v", res, res.Error)
	}
	if res := run(t, g, req(d.print)); res.Stdout != "out ü\n" || res.Error != nil {
		t.Errorf("after the interpreter exited: %+v", res)
	}
}

func checkEnv(t *testing.T, g *guest, d dialect) {
	req := bothy.CodeRequest{Code: d.env, Language: d.language}
	for _, want := range []string{"None", "it's \"ü\"\n$x", "None"} {
		req.Env = nil
		if want != "None" {
			req.Env = map[string]string{"GREETING": want}
		}
		if res := run(t, g, req); res.Stdout != want+"\n" && !(d.language == "bash" && want != "None" && res.Stdout == "it's \"ü\" $x\n") {
			t.Errorf("with %q: %+v, %+v", want, res, res.Error)
		}
	}
}

func checkInterrupts(t *testing.T, g *guest, d dialect) {
	for _, code := range []string{d.sleep, d.spin} {
		res := run(t, g, bothy.CodeRequest{Code: code, Language: d.language, TimeoutSeconds: 0.3})
		if !res.TimedOut || res.Error == nil || res.Error.Name != d.interruptedByError || res.Stdout != "" || res.Hint == "" {
			t.Errorf("time-out of %q: %+v, %+v", code, res, res.Error)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := g.RunCode(ctx, bothy.CodeRequest{Code: d.print + "\n" + d.sleep, Language: d.language})
		done <- err
	}()
	time.AfterFunc(300*time.Millisecond, cancel)
	wantCode(t, <-done, bothy.CodeTimeout)

	enough := errors.New("enough")
	err := g.RunCodeStream(t.Context(), bothy.CodeRequest{Code: d.print + "\n" + d.sleep, Language: d.language}, func(e bothy.CodeEvent) error {
		if e.Stream == "stdout" {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	interrupted := false // the output may arrive in two parts, the second after the code has ended
	err = g.RunCodeStream(t.Context(), bothy.CodeRequest{Code: d.print + "\n" + d.sleep, Language: d.language}, func(e bothy.CodeEvent) error {
		if e.Stream == "stdout" && !interrupted {
			interrupted = true
			return g.InterruptContext(t.Context(), d.language)
		}
		if e.IsFinal && (e.Error == nil || e.Error.Name != d.interruptedByError) {
			t.Errorf("final %+v, %+v", e, e.Error)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func checkContexts(t *testing.T, g *guest, d dialect) {
	ctx := t.Context()
	dir := t.TempDir()
	c, err := g.CreateContext(ctx, bothy.CodeContextCreate{Language: d.language, Cwd: dir})
	if err != nil || c.Language != d.language || c.ID == "" || c.CreatedAt.IsZero() {
		t.Fatal(c, err)
	}
	if res := run(t, g, bothy.CodeRequest{Code: d.get, ContextID: c.ID}); res.Error == nil && res.Stdout == "42\n" {
		t.Errorf("a variable of another context is visible: %+v", res)
	}
	if res := run(t, g, bothy.CodeRequest{Code: d.set + "\n" + d.get, ContextID: c.ID}); res.Stdout != "42\n" || res.ContextID != c.ID {
		t.Errorf("in its own context: %+v, %+v", res, res.Error)
	}
	if err := g.RestartContext(ctx, c.ID); err != nil {
		t.Error(err)
	}
	if res := run(t, g, bothy.CodeRequest{Code: d.get, ContextID: c.ID}); res.Error == nil && res.Stdout == "42\n" {
		t.Errorf("a variable survived a restart: %+v", res)
	}
	list, err := g.Contexts(ctx)
	if err != nil || len(list) != 2 || list[1] != *c {
		t.Errorf("contexts %+v, %v", list, err)
	}
	if err := g.DeleteContext(ctx, c.ID); err != nil {
		t.Error(err)
	}
	_, err = g.RunCode(ctx, bothy.CodeRequest{Code: d.get, ContextID: c.ID})
	wantCode(t, err, bothy.CodeContextNotFound)
	wantCode(t, g.DeleteContext(ctx, c.ID), bothy.CodeContextNotFound)
	_, err = g.RunCode(ctx, bothy.CodeRequest{Code: "x", ContextID: d.language, Language: "cobol"})
	wantCode(t, err, bothy.CodeInvalid)
	_, err = g.RunCode(ctx, bothy.CodeRequest{Code: "x", Language: "cobol"})
	wantCode(t, err, bothy.CodeUnsupported)
}

// slowPython replaces the interpreter with one that starts only once begin is called.
func slowPython(t *testing.T, g *guest) (begin func()) {
	t.Helper()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	out, err := exec.Command(python, "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	gate := filepath.Join(bin, "gate")
	script := fmt.Sprintf("#!/bin/sh\nwhile [ ! -e %s ]; do sleep 0.01; done\nexec %s \"$@\"\n", gate, strings.TrimSpace(string(out)))
	if err := os.WriteFile(filepath.Join(bin, "python3"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	adoptWith(t, g, map[string]string{"PATH": bin + ":/usr/bin:/bin", "HOME": t.TempDir()})
	return func() {
		if err := os.WriteFile(gate, nil, 0o644); err != nil {
			t.Error(err)
		}
	}
}

// Code can be interrupted while its interpreter is still starting, and the next code runs.
func TestInterruptWhileTheInterpreterStarts(t *testing.T) {
	g := adopted(t)
	begin := slowPython(t, g)
	ctx, err := g.CreateContext(t.Context(), bothy.CodeContextCreate{Language: "python"})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, g.InterruptContext(t.Context(), ctx.ID), bothy.CodeConflict)
	results := make(chan *bothy.CodeResult, 1)
	go func() {
		results <- run(t, g, bothy.CodeRequest{ContextID: ctx.ID, Code: "import time; time.sleep(600)"})
	}()
	eventually(t, "the code can be interrupted", func() bool { return g.InterruptContext(t.Context(), ctx.ID) == nil })
	begin()
	res := <-results
	if res == nil || res.Error == nil || res.Error.Name != "KeyboardInterrupt" {
		t.Fatalf("%+v, %+v", res, res.Error)
	}
	if res := run(t, g, bothy.CodeRequest{ContextID: ctx.ID, Code: "print(1)"}); res.Stdout != "1\n" {
		t.Errorf("%+v", res)
	}
	wantCode(t, g.InterruptContext(t.Context(), ctx.ID), bothy.CodeConflict)
}

// An interrupt stops the code that is running, whenever it arrives, and never the next.
func TestInterruptAtAnyMoment(t *testing.T) {
	program(t, "python3")
	g := adopted(t)
	plainPath(t, g)
	for i := range 20 {
		ctx, err := g.CreateContext(t.Context(), bothy.CodeContextCreate{Language: "python"})
		if err != nil {
			t.Fatal(err)
		}
		first, second := make(chan *bothy.CodeResult, 1), make(chan *bothy.CodeResult, 1)
		go func() {
			first <- run(t, g, bothy.CodeRequest{ContextID: ctx.ID, Code: "import time; time.sleep(600)"})
		}()
		for g.InterruptContext(t.Context(), ctx.ID) != nil { // the code has not reached the guest yet
			time.Sleep(time.Duration(i) * time.Millisecond)
		}
		go func() { second <- run(t, g, bothy.CodeRequest{ContextID: ctx.ID, Code: "print('next')"}) }()
		if res := <-first; res == nil || res.Error == nil || res.Error.Name != "KeyboardInterrupt" {
			t.Fatalf("%d: %+v, %+v", i, res, res.Error)
		}
		if res := <-second; res == nil || res.Error != nil || res.Stdout != "next\n" {
			t.Fatalf("%d: the next code: %+v, %+v", i, res, res.Error)
		}
		if err := g.DeleteContext(t.Context(), ctx.ID); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExitCodesOfShellCode(t *testing.T) {
	g := adopted(t)
	plainPath(t, g)
	for code, want := range map[string]int{"true": 0, "false": 1, "(exit 5)": 5, "echo x; exit 7": 7, "kill -9 $$": 137} {
		res := run(t, g, bothy.CodeRequest{Code: code, Language: "bash"})
		if res.ExitCode == nil || *res.ExitCode != want || (res.Error == nil) != (want == 0) {
			t.Errorf("%s: %+v, %+v", code, res, res.Error)
		}
		if code == "echo x; exit 7" && (res.Stdout != "x\n" || !strings.Contains(res.Error.Value, "7")) {
			t.Errorf("%+v, %+v", res, res.Error)
		}
	}
	if res := run(t, g, bothy.CodeRequest{Code: "1"}); res.ExitCode != nil {
		t.Errorf("Python: %+v", res)
	}
}
