package vectors

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// environment leads a program to the server, and to no file of the person who
// runs the tests.
func environment(t *testing.T, url, key string) []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "BOTHY_") || strings.HasPrefix(kv, "HOME=") })
	return append(env, "BOTHY_URL="+url, "BOTHY_API_KEY="+key, "HOME="+t.TempDir())
}

// cliPlayer runs the program bothy.
type cliPlayer struct {
	bin string
	env []string
}

func (p *cliPlayer) command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.bin, args...)
	cmd.Env = p.env
	return cmd
}

// run runs a command and returns what it prints.
func (p *cliPlayer) run(stdin []byte, args ...string) ([]byte, *failure) {
	cmd := p.command(args...)
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	if err == nil {
		return out.Bytes(), nil
	}
	return out.Bytes(), refusal(problems.Bytes(), err)
}

// refusal reads why bothy did not do it, as --json has it.
func refusal(problems []byte, err error) *failure {
	f := &failure{}
	if json.Unmarshal(problems, f) != nil || f.Code == "" {
		f.Detail = fmt.Sprintf("%v: %s", err, problems)
	}
	return f
}

// json runs a command that prints the API's answer. The exit code of exec is the
// command's, so an answer is an answer.
func (p *cliPlayer) json(stdin []byte, args ...string) (object, *failure) {
	out, failed := p.run(stdin, append([]string{args[0], "--json"}, args[1:]...)...)
	var answer object
	if err := json.Unmarshal(out, &answer); err == nil {
		return answer, nil
	}
	if failed != nil {
		return nil, failed
	}
	return object{}, nil
}

func (p *cliPlayer) execArgs(step object) []string {
	var args []string
	for flag, name := range map[string]string{"--cwd": "cwd", "--user": "user", "--timeout": "timeout_seconds"} {
		if v, ok := step[name]; ok {
			args = append(args, flag+"="+fmt.Sprint(v))
		}
	}
	env, _ := step["env"].(object)
	for k, v := range env {
		args = append(args, "--env="+k+"="+text(v))
	}
	args = append(args, text(step["sandbox"]), "--")
	if line, ok := step["command"].(string); ok {
		return append(args, line)
	}
	for _, word := range step["command"].([]any) {
		args = append(args, word.(string))
	}
	return args
}

func userFlag(step object) []string {
	if u := text(step["user"]); u != "" {
		return []string{"--user=" + u}
	}
	return nil
}

func (p *cliPlayer) play(step object, heard func(string)) (object, *failure) {
	id := text(step["sandbox"])
	pid := fmt.Sprintf("%.0f", number(step["pid"], 0))
	switch step["do"] {
	case "exec":
		if strings.Contains(fmt.Sprint(step["command"]), "\x00") {
			return nil, &failure{Code: "command_invalid", Hint: "an argument of a program cannot hold it"}
		}
		var stdin []byte
		args := append([]string{"exec"}, p.execArgs(step)...)
		if s, ok := step["stdin"].(string); ok {
			stdin, args = []byte(s), slices.Insert(args, 1, "--stdin")
		}
		return p.json(stdin, args...)
	case "spawn":
		return p.json(nil, append([]string{"exec", "-d"}, p.execArgs(step)...)...)
	case "stream":
		return p.stream(step, heard)
	case "processes":
		return p.json(nil, "ps", id)
	case "follow":
		return p.follow(id, pid, step)
	case "stdin":
		args := []string{"process", "--json", "stdin", id, pid}
		if step["eof"] == true {
			args = append(args, "--eof")
		}
		_, failed := p.run([]byte(text(step["data"])), args...)
		return object{}, failed
	case "signal":
		_, failed := p.run(nil, "process", "--json", "signal", id, pid, fmt.Sprint(step["signal"]))
		return object{}, failed
	case "kill":
		_, failed := p.run(nil, "process", "--json", "kill", id, pid)
		return object{}, failed
	case "logs":
		out, failed := p.run(nil, "logs", id, pid)
		return object{"text": string(out)}, failed
	case "events":
		return p.events(id)
	case "metrics":
		return p.json(nil, "metrics", id)
	case "pause", "resume":
		return p.json(nil, text(step["do"]), id)
	case "terminate":
		_, failed := p.run(nil, "rm", "--json", id)
		return object{}, failed
	case "code":
		args := []string{"code", id, text(step["code"])}
		for flag, name := range map[string]string{"--language": "language", "--context": "context", "--timeout": "timeout_seconds"} {
			if v, ok := step[name]; ok {
				args = append(args, flag+"="+fmt.Sprint(v))
			}
		}
		return p.json(nil, args...)
	case "contexts":
		return p.nested("context", "ls", id)
	case "context_create":
		return p.nested("context", "create", id, "--language="+text(step["language"]), "--cwd="+text(step["cwd"]))
	case "context_restart", "context_remove":
		verb := map[any]string{"context_restart": "restart", "context_remove": "rm"}[step["do"]]
		return p.nested("context", verb, id, text(step["context"]))
	}
	return p.file(id, step)
}

func (p *cliPlayer) nested(group string, args ...string) (object, *failure) {
	return p.json(nil, append([]string{group}, args...)...)
}

func (p *cliPlayer) file(id string, step object) (object, *failure) {
	flags := userFlag(step)
	do := func(stdin []byte, verb string, more ...string) (object, *failure) {
		return p.json(stdin, append(append(append([]string{"files", verb}, flags...), "--"), more...)...)
	}
	path := text(step["path"])
	switch step["do"] {
	case "write":
		if mode := text(step["mode"]); mode != "" {
			flags = append(flags, "--mode="+mode)
		}
		return do(content(step), "write", id, path)
	case "read":
		args := append(append([]string{"files", "--json", "read"}, flags...), "--", id, path)
		b, failed := p.run(nil, args...)
		return object{"text": string(b), "base64": base64.StdEncoding.EncodeToString(b)}, failed
	case "list":
		if depth, ok := step["depth"]; ok {
			flags = append(flags, fmt.Sprintf("--depth=%v", depth))
		}
		return do(nil, "ls", id, path)
	case "stat":
		return do(nil, "stat", id, path)
	case "exists":
		_, failed := do(nil, "stat", id, path)
		if failed != nil && failed.Code != "file_not_found" && failed.Code != "not_a_directory" {
			return nil, failed
		}
		return object{"exists": failed == nil}, nil
	case "mkdir":
		return do(nil, "mkdir", id, path)
	case "move":
		return do(nil, "mv", id, text(step["from"]), text(step["to"]))
	case "remove":
		return do(nil, "rm", id, path)
	}
	return nil, &failure{Detail: fmt.Sprintf("nobody can do %v", step["do"])}
}

// stream runs exec as a person does, and listens while it runs.
func (p *cliPlayer) stream(step object, heard func(string)) (object, *failure) {
	cmd := p.command(append([]string{"exec"}, p.execArgs(step)...)...)
	var out outputs
	var problems bytes.Buffer
	cmd.Stderr = &problems
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, &failure{Detail: err.Error()}
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := pipe.Read(buf)
		if n > 0 {
			out.add("stdout", buf[:n])
			heard(string(buf[:n]))
		}
		if err != nil {
			break
		}
	}
	err = cmd.Wait()
	out.add("stderr", problems.Bytes())
	answer := out.answer()
	answer["exit_code"], answer["is_final"] = 0.0, true
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		answer["exit_code"] = float64(exit.ExitCode())
	} else if err != nil {
		return nil, &failure{Detail: err.Error()}
	}
	return answer, nil
}

func (p *cliPlayer) follow(id, pid string, step object) (object, *failure) {
	from := int64(number(step["from"], 0))
	stop := int64(number(step["stop_after"], 1<<60))
	cmd := p.command("logs", "--json", "--follow", fmt.Sprintf("--from=%d", from), id, pid)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, &failure{Detail: err.Error()}
	}
	var all []byte
	var exit any
	for r := bufio.NewReader(pipe); ; {
		line, err := r.ReadBytes('\n')
		if err != nil {
			break
		}
		var e event
		var o object
		if json.Unmarshal(line, &e) != nil || json.Unmarshal(line, &o) != nil {
			return nil, &failure{Detail: "not JSON: " + string(line)}
		}
		if e.IsFinal {
			exit = number(o["exit_code"], 0)
			break
		}
		if len(all) == 0 {
			from = e.Offset
		}
		if all = append(all, e.bytes()...); from+int64(len(all)) >= stop {
			_ = cmd.Process.Kill()
			break
		}
	}
	_, _ = io.Copy(io.Discard, pipe)
	err = cmd.Wait()
	if exit == nil && len(all) == 0 && err != nil {
		return nil, refusal(problems.Bytes(), err)
	}
	return followed(from, all, exit), nil
}

func (p *cliPlayer) events(id string) (object, *failure) {
	out, failed := p.run(nil, "events", "--json")
	types := []any{}
	for line := range strings.Lines(string(out)) {
		var e object
		if json.Unmarshal([]byte(line), &e) == nil && e["sandbox_id"] == id {
			types = append(types, e["type"])
		}
	}
	return object{"types": types}, failed
}
