package mcp

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bothy-dev/bothy"
)

// Limits on a command's output, to spare the model.
const (
	defaultOutput = 64 << 10
	maxOutput     = 4 << 20
	// structuredOutput limits how much of the text structured content repeats, unless the caller
	// says how much it wants. Clients pass a model one of them, and some both.
	structuredOutput = 16 << 10
)

type shellIn struct {
	SandboxID      string            `json:"sandbox_id" jsonschema:"The sandbox's id"`
	Command        string            `json:"command" jsonschema:"A bash command line"`
	Cwd            string            `json:"cwd,omitempty" jsonschema:"Where it runs; /workspace by default"`
	User           string            `json:"user,omitempty" jsonschema:"Who runs it: user (the default) or root"`
	Env            map[string]string `json:"env,omitempty" jsonschema:"Additional environment variables"`
	Stdin          string            `json:"stdin,omitempty" jsonschema:"What the command reads from its standard input"`
	Kept           bool              `json:"kept,omitempty" jsonschema:"Run it in the sandbox's kept shell, whose directory and variables persist from one command to the next; not with cwd, user, env or stdin"`
	Restart        bool              `json:"restart,omitempty" jsonschema:"Reset the kept shell first; the command may then be empty"`
	TimeoutSeconds float64           `json:"timeout_seconds,omitempty" jsonschema:"Kill the command, and everything it started, after this long; by default only the sandbox's own time-out applies"`
	MaxOutputBytes int               `json:"max_output_bytes,omitempty" jsonschema:"Keep this much of stdout and of stderr, leaving out the middle; 65536 by default, 4194304 at most"`
}

type shellOut struct {
	ExitCode   int    `json:"exit_code"`
	Stdout     string `json:"stdout"`
	Stderr     string `json:"stderr"`
	DurationMS int64  `json:"duration_ms"`
	TimedOut   bool   `json:"timed_out"`
	OOMKilled  bool   `json:"oom_killed"`
	Truncated  bool   `json:"truncated" jsonschema:"Something was left out of stdout or stderr"`
	Hint       string `json:"hint,omitempty" jsonschema:"What to do when a limit ended the command"`
}

type codeIn struct {
	SandboxID      string  `json:"sandbox_id" jsonschema:"The sandbox's id"`
	Code           string  `json:"code" jsonschema:"The code to run. Variables persist from one call to the next"`
	Language       string  `json:"language,omitempty" jsonschema:"python (the default), javascript or bash"`
	ContextID      string  `json:"context_id,omitempty" jsonschema:"Where to run it; by default each language has one context"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" jsonschema:"Interrupt the code after this long"`
}

type codeOut struct {
	Results        []bothy.CodeOutput `json:"results" jsonschema:"What the code displayed, by MIME type. Images are not here but in the content"`
	Stdout         string             `json:"stdout"`
	Stderr         string             `json:"stderr"`
	Error          *bothy.CodeError   `json:"error,omitempty" jsonschema:"The exception that ended the code"`
	ExecutionCount int                `json:"execution_count"`
	DurationMS     int64              `json:"duration_ms"`
	TimedOut       bool               `json:"timed_out"`
	OOMKilled      bool               `json:"oom_killed"`
	Truncated      bool               `json:"truncated"`
	ContextID      string             `json:"context_id"`
	Hint           string             `json:"hint,omitempty"`

	// images and notes are only in the content.
	images []mcp.Content
	notes  []string
}

type waitIn struct {
	SandboxID      string  `json:"sandbox_id" jsonschema:"The sandbox's id"`
	Port           int     `json:"port,omitempty" jsonschema:"Wait until a server accepts connections on this port"`
	URL            string  `json:"url,omitempty" jsonschema:"Wait until this URL, as seen from inside the sandbox, is answered with a status from 200 to 399"`
	Status         int     `json:"status,omitempty" jsonschema:"With url: the status to wait for"`
	Log            string  `json:"log,omitempty" jsonschema:"Wait for a line that contains this, in the output of pid or the file path"`
	Regex          bool    `json:"regex,omitempty" jsonschema:"log is a regular expression"`
	Path           string  `json:"path,omitempty" jsonschema:"With log: the file"`
	PID            int     `json:"pid,omitempty" jsonschema:"Alone: wait for the end of this process. Otherwise: stop with an error when it ends"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" jsonschema:"Stop waiting after this long, 600 at most; 60 by default"`
}

func (t tools) addRun() {
	add(t, runs, "run_shell", "Run a shell command",
		"Runs a command to its end in a sandbox and returns its output and exit code. It may change or delete anything inside that sandbox, and reach what the sandbox's network policy allows.",
		t.runShell)
	add(t, runs, "run_code", "Run code",
		"Runs code in a sandbox, in a context that keeps variables between calls, and returns what it displayed: values, tables, images, errors. It may change or delete anything inside that sandbox, and reach what the sandbox's network policy allows.",
		t.runCode)
	add(t, runs, "wait_for", "Wait until something is ready",
		"Returns when a server in the sandbox listens on a port, when a URL is answered, when a line is written to a command's output or a file, or when a process ends; or, with timed_out, when the time is up. Use it instead of asking again and again.",
		func(ctx context.Context, _ *mcp.CallToolRequest, in waitIn) ([]mcp.Content, *bothy.WaitResult, error) {
			r, err := t.Exec.Wait(ctx, in.SandboxID, bothy.WaitRequest{
				Port: in.Port, URL: in.URL, Status: in.Status, Log: in.Log, Regex: in.Regex, Path: in.Path, PID: in.PID, TimeoutSeconds: in.TimeoutSeconds,
			})
			return nil, r, err
		})
}

func (t tools) runShell(ctx context.Context, req *mcp.CallToolRequest, in shellIn) ([]mcp.Content, shellOut, error) {
	keep, err := bounded("max_output_bytes", in.MaxOutputBytes, defaultOutput, maxOutput)
	if err != nil {
		return nil, shellOut{}, err
	}
	if in.Kept || in.Restart {
		return t.runKept(ctx, req, in, keep)
	}
	if in.Command == "" {
		return nil, shellOut{}, bothy.Errorf(bothy.CodeInvalid, "command is empty").WithHint("Give a line for bash, such as \"ls -l\".")
	}
	er := bothy.ExecRequest{
		Command: bothy.Command{Line: in.Command}, Cwd: in.Cwd, User: in.User, Env: in.Env, Stdin: in.Stdin, TimeoutSeconds: in.TimeoutSeconds,
	}
	p := progressOf(req)
	var r *bothy.ExecResult
	if p.wanted() {
		r, err = t.execTelling(ctx, in.SandboxID, er, p)
	} else {
		r, err = t.Exec.Exec(ctx, in.SandboxID, er)
	}
	if err != nil {
		return nil, shellOut{}, err
	}
	out := shellOut{
		ExitCode: r.ExitCode, Stdout: r.Stdout, Stderr: r.Stderr, DurationMS: r.DurationMS,
		TimedOut: r.TimedOut, OOMKilled: r.OOMKilled, Truncated: r.Truncated, Hint: r.Hint,
	}
	content := out.content(in, keep)
	return content, out, nil
}

// content shortens the outputs and returns them as text, too.
func (o *shellOut) content(in shellIn, keep int) []mcp.Content {
	var cut1, cut2 bool
	o.Stdout, cut1 = shorten(o.Stdout, keep)
	o.Stderr, cut2 = shorten(o.Stderr, keep)
	o.Truncated = o.Truncated || cut1 || cut2
	content := text(shellText(*o))
	if in.MaxOutputBytes == 0 {
		repeated(&o.Stdout, &o.Stderr, &o.Truncated)
	}
	return content
}

// repeated shortens the output in structured content that is also in the text.
func repeated(stdout, stderr *string, truncated *bool) {
	for _, s := range []*string{stdout, stderr} {
		var cut bool
		*s, cut = shorten(*s, structuredOutput)
		*truncated = *truncated || cut
	}
}

// execTelling runs a command like Exec, and reports its output as it arrives.
func (t tools) execTelling(ctx context.Context, id string, req bothy.ExecRequest, p *progress) (*bothy.ExecResult, error) {
	var r bothy.ExecResult
	out := map[string]*ends{"stdout": {}, "stderr": {}}
	err := t.Exec.ExecStream(ctx, id, req, func(e bothy.ExecEvent) error {
		if e.IsFinal {
			r.ExitCode, r.DurationMS, r.TimedOut, r.OOMKilled, r.Hint = e.ExitCode, e.DurationMS, e.TimedOut, e.OOMKilled, e.Hint
			r.Truncated = e.Truncated
			return nil
		}
		b, err := e.Bytes()
		if err != nil {
			return err
		}
		if to := out[e.Stream]; to != nil {
			to.add(string(b))
			p.say(ctx, lastLine(string(b)))
		}
		return nil
	})
	r.Stdout, r.Stderr = out["stdout"].String(), out["stderr"].String()
	r.Truncated = r.Truncated || out["stdout"].dropped > 0 || out["stderr"].dropped > 0
	return &r, err
}

// ends keeps the beginning and the end of a long output.
type ends struct {
	head, tail []byte
	dropped    int
}

func (e *ends) add(s string) {
	n := min(len(s), maxOutput-len(e.head))
	e.head = append(e.head, s[:n]...)
	e.tail = append(e.tail, s[n:]...)
	if over := len(e.tail) - 2*maxOutput; over > 0 {
		cut := len(e.tail) - maxOutput
		e.dropped += cut
		e.tail = append(e.tail[:0], e.tail[cut:]...)
	}
}

func (e *ends) String() string { return strings.ToValidUTF8(string(e.head)+string(e.tail), "\uFFFD") }

func lastLine(s string) string {
	s = strings.TrimRight(strings.ToValidUTF8(s, "\uFFFD"), "\r\n")
	line, _ := shorten(s[strings.LastIndexAny(s, "\r\n")+1:], 200)
	return line
}

func shellText(o shellOut) string {
	var b strings.Builder
	b.WriteString(o.Stdout)
	if o.Stderr != "" {
		section(&b, "stderr:")
		b.WriteString(o.Stderr)
	}
	if o.ExitCode != 0 {
		section(&b, fmt.Sprintf("exit code %d", o.ExitCode))
	}
	if o.Hint != "" {
		section(&b, o.Hint)
	}
	return b.String()
}

func section(b *strings.Builder, line string) {
	if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
		b.WriteByte('\n')
	}
	b.WriteString(line + "\n")
}

func (t tools) runCode(ctx context.Context, req *mcp.CallToolRequest, in codeIn) ([]mcp.Content, codeOut, error) {
	p := progressOf(req)
	p.say(ctx, "running")
	r, err := t.Code.RunCode(ctx, in.SandboxID, bothy.CodeRequest{
		Code: in.Code, Language: in.Language, ContextID: in.ContextID, TimeoutSeconds: in.TimeoutSeconds,
	})
	if err != nil {
		return nil, codeOut{}, err
	}
	out := codeOut{
		Results: []bothy.CodeOutput{}, Error: r.Error, ExecutionCount: r.ExecutionCount, DurationMS: r.DurationMS, TimedOut: r.TimedOut,
		OOMKilled: r.OOMKilled, Truncated: r.Truncated, ContextID: r.ContextID, Hint: r.Hint,
	}
	var cut1, cut2 bool
	out.Stdout, cut1 = shorten(r.Stdout, defaultOutput)
	out.Stderr, cut2 = shorten(r.Stderr, defaultOutput)
	out.Truncated = out.Truncated || cut1 || cut2
	for _, shown := range r.Results {
		rest := bothy.CodeOutput{}
		for _, mime := range slices.Sorted(maps.Keys(shown)) {
			if b := imageOf(mime, shown[mime]); b != nil {
				image, note, err := picture(ctx, mime, b)
				if err != nil {
					note = "[" + bothy.AsError(err).Detail + "]"
				} else {
					out.images = append(out.images, image)
				}
				if note != "" {
					out.notes = append(out.notes, note)
				}
				continue
			}
			var cut bool
			rest[mime], cut = shorten(shown[mime], maxOutput)
			out.Truncated = out.Truncated || cut
		}
		out.Results = append(out.Results, rest)
		if len(rest["text/plain"]) > defaultOutput {
			out.Truncated = true
		}
	}
	content := out.content()
	repeated(&out.Stdout, &out.Stderr, &out.Truncated)
	return content, out, nil
}

// content is the output as text, and the pictures.
func (o *codeOut) content() []mcp.Content {
	var b strings.Builder
	b.WriteString(o.Stdout)
	if o.Stderr != "" {
		section(&b, "stderr:")
		b.WriteString(o.Stderr)
	}
	for _, shown := range o.Results {
		if plain := shown["text/plain"]; plain != "" {
			short, _ := shorten(plain, defaultOutput)
			section(&b, short)
		}
	}
	if e := o.Error; e != nil {
		section(&b, firstNonEmpty(e.Traceback, e.Name+": "+e.Value))
	}
	if o.Hint != "" {
		section(&b, o.Hint)
	}
	for _, note := range o.notes {
		section(&b, note)
	}
	return append(text(b.String()), o.images...)
}

// imageOf returns the bytes of a picture that clients can show, or nil.
func imageOf(mime, data string) []byte {
	if !imageTypes[mime] {
		return nil
	}
	b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(data), ""))
	if err != nil {
		return nil
	}
	return b
}

func firstNonEmpty(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func text(s string) []mcp.Content { return []mcp.Content{&mcp.TextContent{Text: s}} }

func jsonText(v any) []mcp.Content {
	b, err := json.Marshal(v)
	if err != nil {
		return nil // what cannot be encoded cannot be structured content either
	}
	return text(string(b))
}

// shorten keeps about limit bytes of s, from its beginning and its end.
func shorten(s string, limit int) (string, bool) {
	if len(s) <= limit {
		return s, false
	}
	head, tail := limit/2, len(s)-limit/2
	for head > 0 && !utf8.RuneStart(s[head]) {
		head--
	}
	for tail < len(s) && !utf8.RuneStart(s[tail]) {
		tail++
	}
	return fmt.Sprintf("%s\n[%d bytes left out]\n%s", s[:head], tail-head, s[tail:]), true
}

// bounded checks a number of bytes; zero means the default.
func bounded(name string, n, normal, most int) (int, error) {
	switch {
	case n == 0:
		return normal, nil
	case n < 1 || n > most:
		return 0, bothy.Errorf(bothy.CodeInvalid, "%s is %d", name, n).WithHint("Give a number from 1 to %d, or leave it out.", most)
	}
	return n, nil
}
